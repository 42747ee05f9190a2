"""The base of faults on packets, which lose, repeat, damage or delay what brokers send.

The kernel does it in containers, on request of Pumba, and TCP sees it as on a bad network. Links that carry a proxy are
excluded: a broker sends over them to the proxy, which has its own connection to the other broker.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, model_validator

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.packets import Disturbance, DisturbedPackets, PacketActs
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver, TargetError, check_links, fixed_links, resolved_links
from rabbitmq_resilience.nemesis.two_forms import BETWEEN_SCHEMA, as_links, either_of
from rabbitmq_resilience.sut.container_protocol import ContainerCluster
from rabbitmq_resilience.sut.protocol import Cluster
from rabbitmq_resilience.workload.queues import queue_names
from rabbitmq_resilience.workload.workload_model import Workload

Percent = Annotated[float, Field(gt=0, le=100)]

#: A probe must be answered before TCP sends the lost first packet of its connection again, which is after a second.
ANSWERED_WITHIN_S = 0.9
WHOLE_AGAIN_WITHIN_S = 30.0
#: How many packets are sent over each link in a round, to see what happens to them.
PROBES_MIN, PROBES_MAX = 100, 2000
#: More probes at once would be late on a busy machine.
PROBES_AT_ONCE = 25
#: From this loss on TCP stands still for seconds now and then. The guarantees are those for a cut that comes and goes.
STALLS_FROM_PERCENT = 10
#: The action on brokers by the kind of disturbance; "disturb" for all other kinds.
_ACTS: Mapping[str, str] = {"loss": "lose_packets", "delay": "delay"}


@dataclass(frozen=True)
class PacketCounts:
    """What happened to the packets of one link: the probes sent, the times of the answers, and the number of packets
    that met the kernel's rule, probes or not."""

    sent: int
    answers_ms: Sequence[float]
    met: int
    #: How many answers the target's kernel gave beyond all probes sent to it, over any link.
    repeated: int = 0

    @property
    def lost(self) -> int:
        return self.sent - len(self.answers_ms)


class PacketStep(ScheduledFault):
    """``links`` as for latency, between brokers only."""

    links: str

    model_config = ConfigDict(json_schema_extra=partial(either_of, own="links", other="between", more=BETWEEN_SCHEMA))

    _two_forms = model_validator(mode="before")(as_links)

    acts_on: ClassVar[str] = "packets"

    @property
    @abstractmethod
    def disturbance(self) -> Disturbance: ...

    @abstractmethod
    def unseen(self, seen: PacketCounts) -> str:
        """Return why the disturbance does not show; empty if it does."""
        ...

    @property
    def probes(self) -> int:
        """Return how many probes a round needs to show the disturbance."""
        return PROBES_MIN

    @property
    def probes_at_once(self) -> int:
        return PROBES_AT_ONCE

    def effect_on(self, links: frozenset[Link]) -> Effect:
        return Effect(links_slow=links)

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        try:
            check_links(self.links, topology, queue_names(workload), clients_of=None)
        except TargetError as error:
            return {"links": str(error)}
        return {}

    def footprint(self, topology: Topology) -> Footprint:
        """Return the packets, and the action at each node whose kernel carries it out."""
        by = self.disturbance.by
        packets = Footprint(packets=fixed_links(self.links, topology), packets_by=by)
        act = _ACTS.get(self.disturbance.kind, "disturb")
        needs = frozenset({"pumba"} if by == "iptables" else {"pumba", "netem"})
        return replace(packets, acts={act: len(packets.kernels)}, needs=needs)

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> PacketInjection:
        return PacketInjection(context, self, resolved_links(self.links, resolver), for_s)


@dataclass
class PacketInjection:
    context: FaultContext
    step: PacketStep
    links: frozenset[Link]
    for_s: float
    _disturbed: DisturbedPackets | None = field(default=None, init=False)

    @property
    def effect(self) -> Effect:
        return self.step.effect_on(self.links)

    def inject(self) -> None:
        self._disturbed = self._packets.disturb(self.links, self.step.disturbance, for_s=self.for_s)

    def heal(self) -> None:
        if self._disturbed is not None:
            self._disturbed.close()

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that packets met the kernel's rule on every link, and that probes show what happened to
        them."""
        assert self._disturbed is not None, "proven once it is injected"
        disturbed, sent, refused = self._disturbed, Counter[Link](), Counter[str]()
        took: dict[Link, list[float]] = {link: [] for link in self.links}
        seen: dict[Link, PacketCounts] = {}

        def unproven() -> list[str]:
            refused.subtract(self._refusals())
            for link, answers_ms in self._knock().items():
                sent[link] += self.step.probes
                refused[link.target] -= self.step.probes
                took[link] += answers_ms
            refused.update(self._refusals())
            met = disturbed.met()
            seen.update({x: PacketCounts(sent[x], took[x], met.get(x, 0), refused[x.target]) for x in self.links})
            return [f"{link}: {text}" for link in sorted(seen) if (text := _complaint(self.step, seen[link]))]

        still = left_over(unproven, timeout_s=timeout_s, what="disturbed packets")
        return Proof(False, "; ".join(still)) if still else Proof(True, _description(seen))

    def prove_healed(self) -> Proof:
        """Return a proof that every probe over each link is answered again. Healing itself has checked that no rule is
        left."""

        def lossy() -> list[str]:
            rounds = self._knock().items()
            return [f"{self.step.probes - len(ms)} on {link}" for link, ms in rounds if len(ms) < self.step.probes]

        still = left_over(lossy, timeout_s=WHOLE_AGAIN_WITHIN_S, what="all probes to be answered")
        if still:
            return Proof(False, f"of {self.step.probes} probes some are still lost: {', '.join(still)}")
        return Proof(True, f"no rule is left, and all of {self.step.probes} probes over each link are answered")

    def _knock(self) -> Mapping[Link, Sequence[float]]:
        """Return the answer times of a round of probes. Links from a node that does not run, or to one that is gone,
        are left out."""
        process = self.context.cluster.process
        there = [x for x in sorted(self.links) if process(x.source) == "running" and process(x.target) != "gone"]
        step = self.step
        return self._packets.try_connections(
            there, times=step.probes, at_once=step.probes_at_once, wait_s=ANSWERED_WITHIN_S
        )

    def _refusals(self) -> Mapping[str, int]:
        """Return how many connections the kernel of each target has refused by now. It refuses all probes."""
        targets = {link.target for link in self.links if self.context.cluster.process(link.target) == "running"}
        return {node: self._packets.refusals(node) for node in targets}

    @property
    def _packets(self) -> PacketActs:
        cluster = self.context.cluster
        assert isinstance(cluster, PacketActs), "what a driver does not offer is refused before"
        return cluster


def in_containers(cluster: Cluster) -> ContainerCluster:
    assert isinstance(cluster, ContainerCluster), "what a driver does not offer is refused before"
    return cluster


def probes_to_lose_some(percent: float) -> int:
    """Return how many probes to send so that about five of them are lost."""
    return min(PROBES_MAX, max(PROBES_MIN, math.ceil(500 / percent)))


def lossy_effect(links: frozenset[Link], *, percent: float) -> Effect:
    if percent < STALLS_FROM_PERCENT:
        return Effect(links_slow=links)
    return Effect(links_cut=links, intermittent=percent < 100)


def _complaint(step: PacketStep, seen: PacketCounts) -> str:
    if not seen.sent:
        return "nothing could be sent, as a node was away"
    if not seen.met:
        return f"no packet has met the rule; {seen.lost} of {seen.sent} probes were lost"
    return step.unseen(seen)


def _description(seen: Mapping[Link, PacketCounts]) -> str:
    rows = []
    for link, of in sorted(seen.items()):
        took = f", answers took {min(of.answers_ms):.0f} to {max(of.answers_ms):.0f} ms" if of.answers_ms else ""
        rows.append(f"{link}: {of.met} packets met, {of.lost} of {of.sent} probes lost{took}")
    return "; ".join(rows)
