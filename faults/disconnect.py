"""Connections between sides die at once and new ones are refused, as by a firewall that resets or a switch's end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from faults.fault import Arena, Effect, LateProof, Proof, left_over
from faults.sides import SidesStep
from faults.silence import prove_links_carry, unproxied
from faults.targets import Resolver, links_between
from reports.events import Event, read_events
from reports.history import now_us
from topologies.spec import Link
from workloads.load import worker_name

#: Brokers tell their connections five times a second, and look for a lost one at once; clients record a loss at once.
PARTED_WITHIN_S = 3.0


class Disconnect(SidesStep):
    """Unlike a partition this is noticed at once, by both ends."""

    fault: Literal["disconnect"] = "disconnect"

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> DisconnectInjection:  # noqa: ARG002 - one form for all
        return DisconnectInjection(arena, links_between(resolver.sides(self.between)))


@dataclass
class DisconnectInjection:
    arena: Arena
    links: frozenset[Link]
    _connections: Mapping[Link, str] = field(default_factory=dict, init=False)
    _clients: Mapping[str, str] = field(default_factory=dict, init=False)
    _begun_us: int = field(default=0, init=False)

    @cached_property
    def effect(self) -> Effect:
        return Effect(links_cut=self.links, sudden=True)

    def inject(self) -> None:
        links = self.arena.cluster.links
        named = {link: links.connection(link) for link in self.links if link.client is None}
        self._connections = {link: name for link, name in named.items() if name is not None}
        connected = {link.source: self._connected_to(link.source) for link in self.links if link.client == link.source}
        self._clients = {client: node for client, node in connected.items() if Link(client, node) in self.links}
        self._begun_us = now_us()
        self.arena.refusals.add(self.links, links.refuse)

    def heal(self) -> None:
        self.arena.refusals.remove(self.links, self.arena.cluster.links.accept)

    def prove(self, *, timeout_s: float) -> Proof | LateProof:
        """New connections are refused; and every connection that was there before is gone, or another one by now."""
        bare = unproxied(self.arena, self.links)
        if bare is not None:
            return bare
        accepted = sorted(str(link) for link in self.links if not self.arena.cluster.links.refuses(link))
        if accepted:
            return Proof(False, f"connections were still accepted on {', '.join(accepted[:4])}")
        return self._prove_parted() if timeout_s > PARTED_WITHIN_S else self._prove_parted

    def prove_healed(self) -> Proof:
        return prove_links_carry(self.arena, self.links)

    def _prove_parted(self) -> Proof:
        still = left_over(self._lasting, timeout_s=PARTED_WITHIN_S, what="connections to end")
        if still:
            return Proof(False, f"not seen to have lost the connection: {', '.join(still)}")
        if not self._connections and not self._clients:
            return Proof(True, f"{len(self.links)} links refused connections; there was none on them before")
        ended = [f"{len(self._connections) // 2} connections between brokers"] if self._connections else []
        ended += [f"that of {client} to {node}" for client, node in sorted(self._clients.items())]
        return Proof(True, f"new connections were refused, and {' and '.join(ended)} ended")

    def _lasting(self) -> list[str]:
        """Whose connection is the one from before. A broker that does not run now cannot tell, and need not."""
        cluster = self.arena.cluster
        brokers = [
            str(link)
            for link, name in sorted(self._connections.items())
            if cluster.process(link.source) == "running" and cluster.links.connection(link) == name
        ]
        return brokers + sorted(client for client in self._clients if not self._has_lost(client))

    def _connected_to(self, client: str) -> str:
        """The node to which the client is connected by its own record; empty if to none."""
        events = [event for event in self._events(client) if event["event"] in ("connected", "connection_lost")]
        return str(events[-1]["node"]) if events and events[-1]["event"] == "connected" else ""

    def _has_lost(self, client: str) -> bool:
        ended = ("connection_lost", "killed", "stopped")
        return any(event["event"] in ended and event["t_us"] >= self._begun_us for event in self._events(client))

    def _events(self, client: str) -> list[Event]:
        path = self.arena.load.worker(worker_name(client)).events_file
        return [event for event in read_events(path) if event["kind"] == "worker"]
