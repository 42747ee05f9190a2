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
from invariants.situations import TICKS_MAX
from topologies.cluster import Cluster
from topologies.management import ApiError, ApiUnreachable
from topologies.spec import Link, is_client

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
    _serving: frozenset[str] = field(default=frozenset(), init=False)
    _by_probes: bool = field(default=False, init=False)

    @cached_property
    def effect(self) -> Effect:
        return Effect(links_cut=links_between(self.sides, one_way=self.one_way))

    @property
    def _broker_links(self) -> frozenset[Link]:
        return frozenset(link for link in self.effect.links_cut if link.client is None)

    @property
    def _node_sides(self) -> list[tuple[str, ...]]:
        return [side for side in self.sides if not any(map(is_client, side))]

    def inject(self) -> None:
        """Clients tell nobody what they see; and brokers do so too late for a short cut, and not at all where they
        are parted already or none of a side serves: those links are probed."""
        cluster = self.arena.cluster
        self._serving = frozenset(node for node in cluster.topology.node_names if cluster.state(node) == "up")
        told = all(self._serving & {*side} for side in self._node_sides)
        connected = all(cluster.links.connection(link) is not None for link in self._broker_links)
        self._by_probes = self.for_s < SHORT_S or not (told and connected)
        probed = self.effect.links_cut - (frozenset() if self._by_probes else self._broker_links)
        self._silence = Silence(self.arena, probed) if probed else None
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
        if self._broker_links and not self._by_probes:
            noticed_s = TICKS_MAX * self.arena.cluster.topology.net_ticktime_s
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

        A node that has paused tells by that, if it served before: one that boots looks the same. A cut one way parts
        both ends: who hears nothing closes the connection.
        """
        cluster = self.arena.cluster
        complaints = []
        for side in self._node_sides:
            others = {node for other in self._node_sides if other is not side for node in other}
            states = {node: cluster.state(node) for node in side}
            if not any(state == "up" or (state == "paused" and n in self._serving) for n, state in states.items()):
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
