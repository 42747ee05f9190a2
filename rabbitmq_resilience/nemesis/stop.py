"""Brokers are shut down gracefully, as operators do, and started again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from rabbitmq_resilience.model.broker_changes import MAINTENANCE
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.processes import KILLED, ProcessInjection, ProcessStep
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.sut.broker.configuration import is_in_owned_family
from rabbitmq_resilience.sut.broker.versions import MAINTENANCE_MODE
from rabbitmq_resilience.sut.node_protocol import ProcessState
from rabbitmq_resilience.sut.protocol import Cluster
from rabbitmq_resilience.workload.workload_base import WorkloadBase


class Stop(ProcessStep):
    """A graceful shutdown. With ``drain``, the node is first put into maintenance mode (``rabbitmq-upgrade drain``,
    from 3.8.8 on), which moves its clients and leaders elsewhere. ``configure`` gives lines of rabbitmq.conf that the
    node has when it is started again."""

    fault: Literal["stop"] = "stop"
    drain: bool = False
    configure: Mapping[str, str] = {}

    example: ClassVar[str] = "node: b1, drain: true"
    needs_calm: ClassVar[bool] = True
    begins_within_s: ClassVar[float] = 12.0

    take: ClassVar[str] = "stop"
    give: ClassVar[str] = "start"
    taken: ClassVar[ProcessState] = "gone"

    @property
    def does(self) -> tuple[str, ...]:
        return ("stop", *(["drain"] if self.drain else []), *(["configure"] if self.configure else []))

    def footprint(self, topology: Topology) -> Footprint:
        return replace(super().footprint(topology), needs=frozenset({MAINTENANCE_MODE} if self.drain else ()))

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        owned = [key for key in self.configure if is_in_owned_family(key)]
        problems = {"configure": f"{', '.join(owned)}: the harness has its own values of these"} if owned else {}
        return {**problems, **super().problems(topology, workload)}

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> ProcessInjection:  # noqa: ARG002 - one form for all
        cluster = context.cluster

        def take(node: str) -> None:
            if self.drain:
                drain(cluster, node)
            cluster.stop(node)

        def give(node: str) -> None:
            if self.configure:
                cluster.configure(node, self.configure)
            cluster.start(node)

        return StopInjection(context, resolver.nodes(self.node), take, give, self.taken)


class StopInjection(ProcessInjection):
    def ended_otherwise(self, node: str, status: int | None) -> str:
        return f"{node} was killed: it ended with status {status}" if status in KILLED else ""


def drain(cluster: Cluster, node: str) -> None:
    cluster.change(node, MAINTENANCE)
    state = cluster.state(node)
    if state != "paused":
        raise ClusterError(f"{node} was drained and still takes clients: it is {state}")
