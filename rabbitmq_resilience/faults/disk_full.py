"""The disk of a broker is full to the last block: what it writes next fails."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rabbitmq_resilience.clusters.equipment import Equipment
from rabbitmq_resilience.clusters.spec import Topology
from rabbitmq_resilience.faults.fault import FaultContext, Proof, left_over, on_each
from rabbitmq_resilience.faults.packets import in_containers
from rabbitmq_resilience.faults.step import Step
from rabbitmq_resilience.faults.targets import Resolver, fixed_nodes, is_fixed, node_problems, possible_nodes
from rabbitmq_resilience.record.events import Effect
from rabbitmq_resilience.workloads.spec import Workload

#: Below it a broker, which wants 50 MB free, would have its alarm from the start.
DISK_MIN_BYTES = 128 * 2**20
ROOM_WITHIN_S = 20.0


class DiskFull(Step):
    """The data of every node that ``node`` may mean gets a disk of its own, of ``disk_bytes``, before the cluster
    starts; the step fills it with a file, and removes that. Before a broker's writes fail it may raise its alarm, or
    not be in time; one that ended for it is started again when there is room."""

    fault: Literal["disk_full"] = "disk_full"
    node: str
    disk_bytes: Annotated[int, Field(ge=DISK_MIN_BYTES)] = 2 * DISK_MIN_BYTES

    acts_on: ClassVar[str] = "containers"
    example: ClassVar[str] = "node: b1, disk_bytes: 300000000"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        return node_problems(self.node, topology, workload)

    def equipment(self, topology: Topology) -> Equipment:
        return Equipment(disks=dict.fromkeys(possible_nodes(self.node, topology), self.disk_bytes))

    def touches_processes(self, topology: Topology) -> frozenset[str]:
        """It may end, and is started again then: nobody else may count on its process."""
        return frozenset(fixed_nodes(self.node, topology)) if is_fixed(self.node) else frozenset()

    def may_touch_processes(self, topology: Topology) -> frozenset[str]:
        return frozenset(possible_nodes(self.node, topology))

    @property
    def unsettles(self) -> bool:
        return True

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.node,)

    def claims(self, topology: Topology) -> frozenset[str]:  # noqa: ARG002 - an alarm of any node blocks on all
        return frozenset({"the alarm of disk"})

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> DiskFullInjection:  # noqa: ARG002
        return DiskFullInjection(context, resolver.nodes(self.node))


@dataclass(frozen=True)
class DiskFullInjection:
    context: FaultContext
    nodes: tuple[str, ...]

    @property
    def effect(self) -> Effect:
        """A node may die of it, and blocks all publishers while it lives."""
        return Effect(nodes_down=self.nodes, nodes_alarmed=self.nodes, alarm="disk")

    def inject(self) -> None:
        cluster = in_containers(self.context.cluster)
        with ThreadPoolExecutor(max_workers=len(self.nodes)) as pool:
            list(pool.map(lambda node: cluster.disk(node).fill(), self.nodes))

    def heal(self) -> None:
        cluster = in_containers(self.context.cluster)

        def give_room(node: str) -> None:
            cluster.disk(node).empty()
            if cluster.process(node) == "gone":
                cluster.start(node)

        on_each(self.nodes, give_room)

    def prove(self, *, timeout_s: float) -> Proof:
        """No block is free, and the kernel takes none more."""
        cluster = in_containers(self.context.cluster)

        def with_room() -> list[str]:
            free = {node: cluster.disk(node).free_bytes() for node in self.nodes}
            return [
                f"{node} has {free_bytes:,} bytes free"
                for node, free_bytes in free.items()
                if free_bytes or cluster.disk(node).takes()
            ]

        still = left_over(with_room, timeout_s=timeout_s, what="disks to be full")
        return Proof(not still, "; ".join(still) or f"the disk of {', '.join(self.nodes)} takes nothing more")

    def prove_healed(self) -> Proof:
        """Each disk takes a block again, and each process runs."""
        cluster = in_containers(self.context.cluster)

        def lacking() -> list[str]:
            full = [f"the disk of {node} takes nothing" for node in self.nodes if not cluster.disk(node).takes()]
            away = [f"{node} is {cluster.process(node)}" for node in self.nodes if cluster.process(node) != "running"]
            return full + away

        still = left_over(lacking, timeout_s=ROOM_WITHIN_S, what="disks to have room")
        free = [f"{cluster.disk(node).free_bytes():,} bytes of {node}" for node in self.nodes]
        return Proof(not still, "; ".join(still) or f"{', '.join(free)} are free")
