"""Brokers die at once and lose all that they stored, as with the disk of a machine; they join again with nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from rabbitmq_resilience.clusters.spec import Topology
from rabbitmq_resilience.faults.fault import FaultContext, Proof
from rabbitmq_resilience.faults.processes import ProcessInjection, ProcessStep
from rabbitmq_resilience.faults.targets import Resolver, size_of


class LoseDisk(ProcessStep):
    """SIGKILL, and all data of the node is removed. Healed it is started again; that peer discovery leads it back into
    its cluster, and its queues to it, is for the invariant ``recovery`` to tell."""

    fault: Literal["lose_disk"] = "lose_disk"

    example: ClassVar[str] = 'node: "follower:q1"'

    def acts(self, topology: Topology) -> Mapping[str, int]:
        count = size_of(self.node, topology)
        return {"kill": count, "lose_data": count}

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> LoseDiskInjection:  # noqa: ARG002
        return LoseDiskInjection(context, resolver.nodes(self.node), _killer(context), context.cluster.start, "gone")


class LoseDiskInjection(ProcessInjection):
    def prove(self, *, timeout_s: float) -> Proof:
        left = [node for node in self.nodes if self.context.cluster.stored_bytes(node)]
        if left:
            return Proof(False, f"{', '.join(left)} still has data")
        return Proof.of_all(
            super().prove(timeout_s=timeout_s), Proof(True, "nothing of what was stored is there any more")
        )


def _killer(context: FaultContext) -> Callable[[str], None]:
    def take(node: str) -> None:
        context.cluster.kill(node)
        context.cluster.lose_data(node)

    return take
