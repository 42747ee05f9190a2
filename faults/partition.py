"""A network partition: packets stop on every link between sides, and come again; no connection is closed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from faults.fault import Arena, Effect, LateProof, Proof, left_over
from faults.sides import DirectedSidesStep
from faults.silence import Silence, prove_links_carry, unproxied
from faults.targets import Resolver, links_between
from topologies.cluster import Cluster
from topologies.management import ApiError, ApiUnreachable
from topologies.spec import Link, is_client

#: Erlang notices a silent peer between 0.75 and 1.25 times net_ticktime (kernel(6), net_ticktime).
NOTICED_AFTER_TICKTIMES = 1.25
REPORTED_WITHIN_S = 3.0
#: Held bytes are seen when they are 0.6 s old, counted five times a second; a shorter cut is proven by probes.
SHORT_S = 2.0


class Partition(DirectedSidesStep):
    """Packets stop on every link between the sides (one way, where so said) and come again when it heals."""

    fault: Literal["partition"] = "partition"

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> PartitionInjection:
        return PartitionInjection(arena, resolver.sides(self.between), self.one_way, for_s)


@dataclass
class PartitionInjection:
    arena: Arena
    sides: tuple[tuple[str, ...], ...]
    one_way: bool
    for_s: float
    _silence: Silence | None = field(default=None, init=False)
    _all_served: bool = field(default=False, init=False)

    @cached_property
    def effect(self) -> Effect:
        return Effect(links_cut=links_between(self.sides, one_way=self.one_way))

    @property
    def _broker_links(self) -> frozenset[Link]:
        return frozenset(link for link in self.effect.links_cut if link.client is None)

    @property
    def _probed(self) -> frozenset[Link]:
        """Clients tell nobody what they see, and brokers not all: too late for a short cut, and nothing while they are
        paused or boot."""
        return self.effect.links_cut - (self._broker_links if self._told_by_brokers else frozenset())

    @property
    def _told_by_brokers(self) -> bool:
        return self._all_served and self.for_s >= SHORT_S

    def inject(self) -> None:
        nodes = {node for link in self._broker_links for node in link}
        self._all_served = all(self.arena.cluster.state(node) == "up" for node in nodes)
        self._silence = Silence(self.arena, self._probed) if self._probed else None
        self.arena.cuts.add(self.effect.links_cut, self.arena.cluster.links.cut)
        if self._silence is not None:
            self._silence.begin()

    def heal(self) -> None:
        if self._silence is not None:
            self._silence.end()
        self.arena.cuts.remove(self.effect.links_cut, self.arena.cluster.links.restore)

    def prove(self, *, timeout_s: float) -> Proof | LateProof:
        """A cut that the brokers must notice: each side reports the other as not running. A shorter one: every cut
        link between living nodes holds bytes back. Where that is too slow, and on links of clients: probes."""
        bare = unproxied(self.arena, self.effect.links_cut)
        if bare is not None:
            return bare
        if self._silence is not None and self.for_s < SHORT_S:
            return self._silence.prove
        proofs, ends_s = [], time.monotonic() + timeout_s
        if self._silence is not None:
            proofs.append(self._silence.prove_while_cut(timeout_s=timeout_s / 2))
        if self._broker_links and self._told_by_brokers:
            noticed_s = NOTICED_AFTER_TICKTIMES * self.arena.cluster.topology.net_ticktime_s
            by_reports = timeout_s > noticed_s + REPORTED_WITHIN_S
            prove = self._prove_by_reports if by_reports else self._prove_by_held_bytes
            proofs.append(prove(ends_s - time.monotonic()))
        return Proof.of_all(*proofs)

    def prove_healed(self) -> Proof:
        return prove_links_carry(self.arena, self.effect.links_cut)

    def _prove_by_reports(self, timeout_s: float) -> Proof:
        started_s = time.monotonic()
        missing = left_over(self._unreported, timeout_s=timeout_s, what="each side to report the other as gone")
        if missing:
            return Proof(False, "; ".join(missing))
        nodes = [node for side in self.sides for node in side if not is_client(node)]
        states = {node: self.arena.cluster.state(node) for node in nodes}
        reporters, paused = (" ".join(n for n in states if states[n] == state) for state in ("up", "paused"))
        told = [f"{reporters} report the other side as gone"] if reporters else []
        told += [f"{paused} paused"] if paused else []
        return Proof(True, f"{', '.join(told)}, {time.monotonic() - started_s:.1f} s after the cut")

    def _unreported(self) -> list[str]:
        """What is not yet seen of: on each side some node tells, and none that serves sees a node of another side.

        A node that has paused tells by that, as all served before the cut: it serves nobody, so it cannot be asked. A
        cut one way parts both ends: who hears nothing closes the connection.
        """
        cluster = self.arena.cluster
        complaints = []
        sides = [side for side in self.sides if not any(map(is_client, side))]
        for side in sides:
            others = {node for other in sides if other is not side for node in other}
            states = {node: cluster.state(node) for node in side}
            if not {"up", "paused"} & set(states.values()):
                complaints.append(f"nobody of {', '.join(side)} can tell: {', '.join(states.values())}")
            for node in (name for name, state in states.items() if state == "up"):
                seen = _seen_running(cluster, node)
                if seen is None:
                    complaints.append(f"{node} does not say whom it sees")
                elif seen & others:
                    complaints.append(f"{node} still sees {', '.join(sorted(seen & others))}")
        return complaints

    def _prove_by_held_bytes(self, timeout_s: float) -> Proof:
        links, cluster = self.arena.cluster.links, self.arena.cluster

        def empty() -> list[str]:
            alive = [link for link in self._broker_links if all(cluster.process(n) == "running" for n in link)]
            idle = sorted(str(link) for link in alive if not links.held_bytes(link))
            return idle if alive else ["any link: there is none with a running broker at both ends"]

        idle = left_over(empty, timeout_s=timeout_s, what="held bytes")
        if idle:
            return Proof(False, f"nothing was held back on {', '.join(idle)}")
        return Proof(True, f"bytes were held back on each of {len(self._broker_links)} links")


def _seen_running(cluster: Cluster, node: str) -> set[str] | None:
    """The nodes that ``node`` itself reports as running, by topology name; None if it does not answer."""
    try:
        running = cluster.api(node).running_nodes()
    except (ApiError, ApiUnreachable):
        return None
    return {name for name in cluster.topology.node_names if cluster.broker_name(name) in running}
