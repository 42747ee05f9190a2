"""Connections between sides die at once and new ones are refused, as by a firewall that resets or a broken switch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

from rabbitmq_resilience.history.events import Effect, WorkerEvent
from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.model.links import Link, is_balancer
from rabbitmq_resilience.nemesis.carrying import prove_links_carry
from rabbitmq_resilience.nemesis.fault import FaultContext, LateProof, Proof, left_over
from rabbitmq_resilience.nemesis.partition_sides import SidesStep
from rabbitmq_resilience.nemesis.silence import count, named, unproxied
from rabbitmq_resilience.nemesis.targets import Resolver, links_between
from rabbitmq_resilience.workload.load import worker_name

#: Brokers list their connections five times a second and look for a lost one at once; clients record a loss at once.
PARTED_WITHIN_S = 3.0
#: How long it takes to be refused once on each link.
REFUSED_S = 0.5


class Disconnect(SidesStep):
    """``between`` is as in ``partition``. Unlike a partition, both ends notice this fault at once."""

    fault: Literal["disconnect"] = "disconnect"

    act: ClassVar[str] = "refuse"

    example: ClassVar[str] = 'between: ["c1", "rest"]'

    def can_be_seen(self, *, alone_s: float, slow_s: float) -> bool:  # noqa: ARG002 - a refusal comes at once
        return alone_s >= min(self.for_s, REFUSED_S)

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> DisconnectInjection:  # noqa: ARG002 - one form for all
        return DisconnectInjection(context, links_between(resolver.sides(self.between)))


@dataclass
class DisconnectInjection:
    context: FaultContext
    links: frozenset[Link]
    _connections: Mapping[Link, str] = field(default_factory=dict, init=False)
    _clients: Mapping[str, str] = field(default_factory=dict, init=False)
    _begun_us: int = field(default=0, init=False)

    @cached_property
    def effect(self) -> Effect:
        return Effect(links_cut=self.links, sudden=True)

    def inject(self) -> None:
        links = self.context.cluster.links
        named = {link: links.connection(link) for link in self.links if link.client is None}
        self._connections = {link: name for link, name in named.items() if name is not None}
        clients = {link.source for link in self.links if link.client == link.source and not is_balancer(link.source)}
        connected = {client: self._connected_to(client) for client in clients}
        self._clients = {client: node for client, node in connected.items() if Link(client, node) in self.links}
        self._begun_us = now_us()
        self.context.refusals.add(self.links, links.refuse)

    def heal(self) -> None:
        self.context.refusals.remove(self.links, self.context.cluster.links.accept)

    def prove(self, *, timeout_s: float) -> Proof | LateProof:
        """Return a proof that new connections are refused, not because of another step, and that every earlier
        connection is gone or replaced by another one."""
        bare = unproxied(self.context, self.links)
        if bare is not None:
            return bare
        ends_s, left = time.monotonic() + timeout_s, set(self.links)

        def accepted_or_shared() -> list[str]:
            found = {link: self._accepted_or_shared(link) for link in sorted(left)}
            left.intersection_update(link for link, text in found.items() if text)
            return [text for text in found.values() if text]

        still = left_over(accepted_or_shared, timeout_s=timeout_s, what="connections to be refused")
        if still:
            return Proof(False, "; ".join(still[:4]))
        return self._prove_parted() if ends_s - time.monotonic() > PARTED_WITHIN_S else self._prove_parted

    def _accepted_or_shared(self, link: Link) -> str:
        looked_s = time.monotonic()
        refused = self.context.cluster.links.refuses(link)
        others = self.context.silencing(link, since_s=looked_s)
        if others:
            return f"connections on {link} may be refused for step {others[0]}"
        return "" if refused else f"connections were still accepted on {link}"

    def prove_healed(self) -> Proof:
        return prove_links_carry(self.context, self.links)

    def _prove_parted(self) -> Proof:
        still = left_over(self._lasting, timeout_s=PARTED_WITHIN_S, what="connections to end")
        if still:
            return Proof(False, f"not seen to have lost the connection: {', '.join(still)}")
        refused = f"{count(self.links)} refused connections ({named(self.links)})"
        if not self._connections and not self._clients:
            return Proof(True, f"{refused}; there was none on them before")
        ended = [f"{len(self._connections) // 2} connections between brokers"] if self._connections else []
        ended += [f"that of {client} to {node}" for client, node in sorted(self._clients.items())]
        return Proof(True, f"{refused}, and {' and '.join(ended)} ended")

    def _lasting(self) -> list[str]:
        """Return the links and clients that still have their earlier connection. Brokers that do not run now are left
        out, as they have no connection."""
        cluster = self.context.cluster
        brokers = [
            str(link)
            for link, name in sorted(self._connections.items())
            if cluster.process(link.source) == "running" and cluster.links.connection(link) == name
        ]
        return brokers + sorted(client for client in self._clients if not self._has_lost(client))

    def _connected_to(self, client: str) -> str:
        """Return the node to which the client is connected by its own record; empty if to none."""
        events = [event for event in self._events(client) if event.event in ("connected", "connection_lost")]
        return events[-1].node if events and events[-1].event == "connected" else ""

    def _has_lost(self, client: str) -> bool:
        ended = ("connection_lost", "killed", "stopped")
        return any(event.event in ended and event.t_us >= self._begun_us for event in self._events(client))

    def _events(self, client: str) -> list[WorkerEvent]:
        return self.context.load.client_events(worker_name(client))
