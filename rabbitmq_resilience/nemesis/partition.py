"""A network partition: packets stop on every link between sides and flow again later; no connection is closed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.durations import TICKS_MAX
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.carrying import prove_links_carry
from rabbitmq_resilience.nemesis.fault import FaultContext, LateProof, Proof, left_over
from rabbitmq_resilience.nemesis.partition_sides import DirectedSidesStep
from rabbitmq_resilience.nemesis.silence import Silence, count, unproxied
from rabbitmq_resilience.nemesis.targets import Resolver, links_between
from rabbitmq_resilience.nemesis.watch import LOOK_S, SILENT_S, Watch
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable
from rabbitmq_resilience.sut.node_protocol import Endpoints, NodeState

REPORTED_WITHIN_S = 3.0
#: A shorter cut is over before a second look.
SHORT_S = 2.0
#: How long the user's own proof may take to show that a cut is over.
ATTESTED_WITHIN_S = 20.0

#: What a broker in that state reports of a cut, if it had the time to notice the cut.
_REPORTED: Mapping[NodeState, str] = {
    "up": "report the other side as gone",
    "paused": "paused",
    "suspended": "suspended",
    "down": "down",
}


class Partition(DirectedSidesStep):
    """``between`` names two or more sides, each a target or a client (``publisher:0``), and at most one ``rest``.
    ``links: "a1 <-> rest"`` means the same. Packets stop on every link between the sides, and flow again when the fault
    heals. With ``one_way``, only what the first of two sides sends to the second is lost. ``["publisher:0", all]`` cuts
    that publisher from every broker."""

    fault: Literal["partition"] = "partition"

    example: ClassVar[str] = 'between: ["zone:c", "rest"]'

    def can_be_seen(self, *, alone_s: float, slow_s: float) -> bool:
        if self.for_s < SHORT_S:
            return alone_s >= self.for_s and slow_s <= self.for_s / 2
        return alone_s >= SILENT_S + LOOK_S + slow_s

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> PartitionInjection:
        return PartitionInjection(context, resolver.sides(self.between), self.one_way, for_s)


@dataclass
class PartitionInjection:
    """A partition that probes prove. The brokers' reports of their earlier connections must not contradict it: a broker
    that communicates past the proxies is not cut off."""

    context: FaultContext
    sides: tuple[tuple[str, ...], ...]
    one_way: bool
    for_s: float
    _silence: Silence | None = field(default=None, init=False)
    _connected: frozenset[Link] = field(default=frozenset(), init=False)

    @cached_property
    def effect(self) -> Effect:
        return Effect(links_cut=links_between(self.sides, one_way=self.one_way))

    def inject(self) -> None:
        links = self.context.cluster.links
        between_brokers = (link for link in self._probed if link.client is None)
        self._connected = frozenset(link for link in between_brokers if links.connection(link) is not None)
        self._silence = Silence(self.context, self._probed) if self.for_s < SHORT_S else None
        self.context.cuts.add(self.effect.links_cut, links.cut)
        if self._silence is not None:
            self._silence.begin()

    def heal(self) -> None:
        if self._silence is not None:
            self._silence.end()
        self.context.cuts.remove(self.effect.links_cut, self.context.cluster.links.restore)

    def prove(self, *, timeout_s: float) -> Proof | LateProof:
        bare = unproxied(self.context, self.effect.links_cut)
        if bare is not None:
            return bare
        attested = self._attested(cut=True, timeout_s=timeout_s)
        if not self._probed or not attested.proven:
            return attested
        if self._silence is not None:
            return self._silence.prove
        ends_s = time.monotonic() + timeout_s
        silent = Watch(self.context, self._probed).prove(timeout_s=timeout_s)
        return Proof.of_all(silent, self._agreed(ends_s, timeout_s)) if silent.proven and self._connected else silent

    def prove_healed(self) -> Proof:
        attested = self._attested(cut=False, timeout_s=ATTESTED_WITHIN_S)
        return prove_links_carry(self.context, self._probed) if self._probed and attested.proven else attested

    @cached_property
    def _probed(self) -> frozenset[Link]:
        """Return the links that probes can check: all, or only those of clients if the user's own proof attests the
        rest."""
        if self.context.cluster.links.attested(()) is None:
            return self.effect.links_cut
        return frozenset(link for link in self.effect.links_cut if link.client is not None)

    def _attested(self, *, cut: bool, timeout_s: float) -> Proof:
        """Return what the user's own proof shows of the other links."""
        others = self.effect.links_cut - self._probed

        def otherwise() -> list[str]:
            attested = self.context.cluster.links.attested(others) or {}
            return [str(link) for link in sorted(others) if attested.get(link) != cut]

        still = left_over(otherwise, timeout_s=timeout_s, what="the user's own proof")
        how = "holds" if cut else "holds no longer"
        if still:
            return Proof(False, f"the proof of the cluster file does not show that the cut {how}: {', '.join(still)}")
        return Proof(True, f"the proof of the cluster file {how} on {count(others)}")

    def _agreed(self, ends_s: float, timeout_s: float) -> Proof:
        """Return a proof that brokers noticed the cut. If the time is too short for that, it is enough that they
        receive nothing."""
        noticed = timeout_s > TICKS_MAX * self.context.cluster.topology.net_ticktime_s + REPORTED_WITHIN_S
        look = self._still_seen if noticed else self._not_held
        contrary = left_over(look, timeout_s=ends_s - time.monotonic(), what="brokers to agree")
        if contrary:
            return Proof(False, f"connections went on: {'; '.join(contrary)}")
        if not noticed:
            return Proof(True, f"the brokers that can report it received nothing more over {count(self._connected)}")
        ends = sorted({end for link in self._connected for end in link.nodes})
        states = {node: self.context.cluster.state(node) for node in ends}
        reported = [(text, [n for n in ends if states[n] == s]) for s, text in _REPORTED.items()]
        return Proof(True, ", ".join(f"{' '.join(nodes)} {text}" for text, nodes in reported if nodes))

    def _still_seen(self) -> list[str]:
        """Return the brokers that serve and still see a node that they are cut off from. A cut one way separates both
        ends: the end that receives nothing closes the connection."""
        found, cluster = [], self.context.cluster
        for node in sorted({end for link in self._connected for end in link.nodes}):
            others = {end for link in self._connected if node in link.nodes for end in link.nodes} - {node}
            seen = _seen_running(cluster, node) if cluster.state(node) == "up" else set()
            found += [f"{node} still sees {', '.join(sorted(seen & others))}"] if seen & others else []
        return found

    def _not_held(self) -> list[str]:
        """Return the links whose brokers and connection are there, but on which everything sent was received."""
        links, process = self.context.cluster.links, self.context.cluster.process
        there = [x for x in sorted(self._connected) if all(process(node) == "running" for node in x.nodes)]
        return [f"nothing was held back on {link}" for link in there if links.held_bytes(link) == 0]


def _seen_running(cluster: Endpoints, node: str) -> set[str]:
    """Return the nodes that ``node`` itself reports as running, by topology name; empty if it does not answer."""
    try:
        running = cluster.api(node).running_nodes()
    except (ApiError, ApiUnreachable):
        return set()
    return {name for name in cluster.topology.node_names if cluster.broker_name(name) in running}
