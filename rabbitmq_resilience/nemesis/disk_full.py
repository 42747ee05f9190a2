"""The disk of a broker is full to the last block, so that the broker's next write fails."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.node_options import NodeOptions
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over, on_each
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.offered import offered
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver, node_problems, possible_nodes
from rabbitmq_resilience.sut.container_protocol import Disks, NodeDisk
from rabbitmq_resilience.workload.workload_base import WorkloadBase

#: With less, a broker, which demands 50 MB of free space, would have its alarm from the start.
DISK_MIN_BYTES = 128 * 2**20
ROOM_WITHIN_S = 20.0


class DiskFull(ScheduledFault):
    """The disk of a broker is filled with a file, which is removed later. In containers, the data of every node that
    ``node`` may mean gets a disk of its own, of ``disk_bytes``, before the cluster starts. Before its writes fail, the
    broker may raise its alarm, or not be in time. A broker that ended because of that is started again once there is
    space."""

    fault: Literal["disk_full"] = "disk_full"
    node: str
    disk_bytes: Annotated[int, Field(ge=DISK_MIN_BYTES)] = 2 * DISK_MIN_BYTES

    acts_on: ClassVar[str] = "disks"
    example: ClassVar[str] = "node: b1, disk_bytes: 300000000"

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        return node_problems(self.node, topology, workload)

    def footprint(self, topology: Topology) -> Footprint:
        """Return the nodes, as one may end and be started again, and the alarm: that of any node blocks on all."""
        return replace(
            Footprint.of_nodes(self.node, topology, acts=["fill_disk"]),
            resources=frozenset({"the alarm of disk"}),
            unsettles=True,
            node_options=NodeOptions(disks=dict.fromkeys(possible_nodes(self.node, topology), self.disk_bytes)),
        )

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> DiskFullInjection:  # noqa: ARG002 - one form for all
        return DiskFullInjection(context, resolver.nodes(self.node))


@dataclass(frozen=True)
class DiskFullInjection:
    context: FaultContext
    nodes: tuple[str, ...]

    @property
    def effect(self) -> Effect:
        """Return the nodes as down and alarmed: a node may die, and blocks all publishers while it lives."""
        return Effect(nodes_down=self.nodes, nodes_may_serve=True, nodes_alarmed=self.nodes, alarm="disk")

    def inject(self) -> None:
        with ThreadPoolExecutor(max_workers=len(self.nodes)) as pool:
            list(pool.map(lambda node: self._disk(node).fill(), self.nodes))

    def heal(self) -> None:
        cluster = self.context.cluster

        def give_room(node: str) -> None:
            self._disk(node).empty()
            if cluster.process(node) == "gone":
                cluster.start(node)

        on_each(self.nodes, give_room)

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that no block is free, that the kernel accepts none, and that no other observer sees space."""

        def with_room() -> list[str]:
            return [text for node in self.nodes if (text := self._room(node))]

        still = left_over(with_room, timeout_s=timeout_s, what="disks to be full")
        return Proof(not still, "; ".join(still) or f"the disk of {', '.join(self.nodes)} takes nothing more")

    def prove_healed(self) -> Proof:
        """Return a proof that each disk accepts a block again, and that each process runs."""
        cluster = self.context.cluster

        def lacking() -> list[str]:
            full = [f"the disk of {node} takes nothing" for node in self.nodes if not self._disk(node).takes()]
            away = [f"{node} is {cluster.process(node)}" for node in self.nodes if cluster.process(node) != "running"]
            return full + away

        still = left_over(lacking, timeout_s=ROOM_WITHIN_S, what="disks to have room")
        free = [f"{self._disk(node).free_bytes():,} bytes of {node}" for node in self.nodes]
        return Proof(not still, "; ".join(still) or f"{', '.join(free)} are free")

    def _room(self, node: str) -> str:
        disk = self._disk(node)
        free_bytes = disk.free_bytes()
        if free_bytes or disk.takes():
            return f"{node} has {free_bytes:,} bytes free"
        return disk.room_seen()

    def _disk(self, node: str) -> NodeDisk:
        return offered(self.context.cluster, Disks).disk(node)
