"""The machines of brokers are drained, as before maintenance: they accept nothing new, and their pods are evicted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over
from rabbitmq_resilience.nemesis.offered import offered
from rabbitmq_resilience.nemesis.processes import ProcessInjection, ProcessStep
from rabbitmq_resilience.nemesis.targets import Resolver, is_fixed
from rabbitmq_resilience.sut.node_protocol import ProcessState
from rabbitmq_resilience.sut.orchestration import MachineDraining
from rabbitmq_resilience.workload.workload_base import WorkloadBase

PLACED_WITHIN_S = 10.0


class DrainNode(ProcessStep):
    """``kubectl drain`` of the machines on which the brokers ``node`` run, and ``uncordon`` when the fault heals. A
    disruption budget may refuse evictions. ``whole_zones`` drains all machines of the brokers' zones, so that none of
    them takes the brokers; then ``node`` is a zone, such as ``zone:b``. A broker comes back by itself if another
    machine of its zone takes it."""

    fault: Literal["drain_node"] = "drain_node"
    whole_zones: bool = False

    acts_on: ClassVar[str] = "orchestrator"
    example: ClassVar[str] = 'node: "zone:b", whole_zones: true'
    begins_within_s: ClassVar[float] = 60.0
    taken: ClassVar[ProcessState] = "gone"

    @property
    def does(self) -> tuple[str, ...]:
        return ("drain_node",)

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        problems = super().problems(topology, workload)
        whole = is_fixed(self.node) and self.node.startswith("zone:")
        if self.whole_zones and not problems and not whole:
            return {"whole_zones": f"all brokers of a zone go with it: name one (zone:b) in place of {self.node}"}
        return problems

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> DrainNodeInjection:  # noqa: ARG002 - one form for all
        nodes = resolver.nodes(self.node)
        return DrainNodeInjection(
            context, nodes, _each_goes_with_all, _each_goes_with_all, self.taken, self.whole_zones
        )


def _each_goes_with_all(node: str) -> None:
    raise AssertionError(f"{node} is drained with the others of its machine")


@dataclass
class DrainNodeInjection(ProcessInjection):
    whole_zones: bool

    def take_all(self) -> None:
        offered(self.context.cluster, MachineDraining).drain_machines(self.nodes, whole_zones=self.whole_zones)

    def give_all(self, nodes: Collection[str]) -> None:
        offered(self.context.cluster, MachineDraining).undrain_machines(nodes)

    def prove(self, *, timeout_s: float) -> Proof:
        gone = super().prove(timeout_s=timeout_s)
        still = offered(self.context.cluster, MachineDraining).open_machines(self.nodes)
        return Proof.of_all(gone, Proof(not still, "; ".join(still) or "their machines take nothing new"))

    def prove_healed(self) -> Proof:
        back = super().prove_healed()
        still = left_over(
            lambda: list(offered(self.context.cluster, MachineDraining).misplaced(self.nodes)),
            timeout_s=PLACED_WITHIN_S,
            what="brokers to be in their zones",
        )
        return Proof.of_all(back, Proof(not still, "; ".join(still) or "each is in its zone"))
