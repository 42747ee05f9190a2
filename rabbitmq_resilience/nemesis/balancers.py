"""The base of faults that take brokers or load balancers away and bring them back.

Process states prove those on load balancers, and connections must agree. A balancer that is gone refuses connections,
and a frozen one answers none, while clients are still answered another way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link, is_balancer
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.processes import BACK_WITHIN_S, ProcessInjection, ProcessStep
from rabbitmq_resilience.nemesis.targets import Resolver, TargetError, balancers_meant, check_balancer
from rabbitmq_resilience.sut.node_protocol import LoadBalancers
from rabbitmq_resilience.workload.workload_base import WorkloadBase

#: How long a frozen balancer must keep a connection waiting.
UNANSWERED_S = 1.0
_ANSWERED_WITHIN_S = 2.0


class AnyProcessStep(ProcessStep):
    """A step whose ``node`` may also be a load balancer (``balancer:0``), or all of them (``balancer:all``). ``take``
    and ``give`` are methods of ``LoadBalancers``, too."""

    @property
    def ability(self) -> str:
        return "balancers" if is_balancer(self.node) else super().ability

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        if not is_balancer(self.node):
            return super().problems(topology, workload)
        try:
            for balancer in balancers_meant(self.node, topology) or (self.node,):
                check_balancer(balancer, topology)
        except TargetError as error:
            return {"node": str(error)}
        return {}

    def footprint(self, topology: Topology) -> Footprint:
        """Return the balancers as resources, as they are no nodes."""
        if not is_balancer(self.node):
            return super().footprint(topology)
        return Footprint(resources=frozenset(balancers_meant(self.node, topology)))

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> ProcessInjection:
        if not is_balancer(self.node):
            return super().prepare(context, resolver, for_s=for_s)
        balancers = context.cluster.balancers
        names = balancers_meant(self.node, context.cluster.topology)
        return BalancerInjection(
            context, names, getattr(balancers, self.take), getattr(balancers, self.give), self.taken
        )


@dataclass
class BalancerInjection(ProcessInjection):
    """``nodes`` are balancers."""

    @property
    def effect(self) -> Effect:
        """Return the links between the balancers and the brokers as cut."""
        ways = {Link(name, node) for name in self.nodes for node in self.context.cluster.topology.client_nodes}
        return Effect(links_cut=frozenset(ways | {link.back for link in ways}), sudden=self.taken == "gone")

    @property
    def places(self) -> LoadBalancers:
        return self.context.cluster.balancers

    @property
    def returning(self) -> bool:
        return False

    def prove(self, *, timeout_s: float) -> Proof:
        ends_s = time.monotonic() + timeout_s
        process = super().prove(timeout_s=timeout_s)
        still = left_over(self._served, timeout_s=ends_s - time.monotonic(), what="balancers to stop serving")
        names = ", ".join(self.nodes)
        silent = f"no broker answers through {names} for {UNANSWERED_S:g} s"
        text = f"connections to {names} are refused" if self.taken == "gone" else silent
        seen = Proof(not still, "; ".join(still) or f"{text}, while {self._answering_elsewhere()} answers")
        return Proof.of_all(process, seen)

    def prove_healed(self) -> Proof:
        process = super().prove_healed()
        still = left_over(self._mute, timeout_s=BACK_WITHIN_S, what="brokers to answer through balancers")
        return Proof.of_all(process, Proof(not still, "; ".join(still) or "a broker answers through each"))

    def _served(self) -> list[str]:
        """Return the balancers that still serve. If none does, say so if no broker answers past them: then their
        silence proves nothing."""
        if self.taken == "gone":
            serving = [f"{name} accepts connections" for name in self.nodes if not self.places.refuses(name)]
        else:
            answers = self.places.answers
            serving = [f"{name} is answered for" for name in self.nodes if answers(name, timeout_s=UNANSWERED_S)]
        return serving or ([] if self._answering_elsewhere() else ["no broker answers past it either"])

    def _mute(self) -> list[str]:
        """Return the balancers through which no broker answers, though some broker could."""
        if not self._serving():
            return [] if not any(map(self.places.refuses, self.nodes)) else ["connections are still refused"]
        answers = self.places.answers
        return [f"{n} is not answered for" for n in self.nodes if not answers(n, timeout_s=_ANSWERED_WITHIN_S)]

    def _answering_elsewhere(self) -> str:
        """Return another balancer or a broker through which clients are answered now; empty if there is none."""
        others = [name for name in self.context.cluster.topology.balancer_names if name not in self.nodes]
        there = (n for n in others if self.places.process(n) == "running")
        answering = (n for n in there if self.places.answers(n, timeout_s=_ANSWERED_WITHIN_S))
        return next(answering, None) or next(iter(self._serving()), "")

    def _serving(self) -> list[str]:
        cluster = self.context.cluster
        return [node for node in cluster.topology.client_nodes if cluster.state(node) == "up"]
