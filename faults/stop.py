"""Brokers are shut down in good order, as operators do, and started again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from faults.fault import Arena
from faults.processes import ProcessInjection, ProcessStep
from faults.targets import Resolver
from topologies.cluster import Cluster, ClusterError, ProcessState
from topologies.configuration import is_in_owned_family
from topologies.spec import Topology
from workloads.spec import Workload


class Stop(ProcessStep):
    """A graceful shutdown. ``drain``: the node is first put into maintenance mode (``rabbitmq-upgrade drain``, from
    3.8.8 on), which moves its clients and leaders elsewhere. ``configure``: lines of rabbitmq.conf that it has when it
    is started again."""

    fault: Literal["stop"] = "stop"
    drain: bool = False
    configure: Mapping[str, str] = {}

    take: ClassVar[str] = "stop"
    give: ClassVar[str] = "start"
    taken: ClassVar[ProcessState] = "gone"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        owned = [key for key in self.configure if is_in_owned_family(key)]
        told = {"configure": f"{', '.join(owned)}: the harness has its own values of these"} if owned else {}
        return {**told, **super().problems(topology, workload)}

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> ProcessInjection:  # noqa: ARG002
        cluster = arena.cluster

        def take(node: str) -> None:
            if self.drain:
                drain(cluster, node)
            cluster.stop(node)

        def give(node: str) -> None:
            if self.configure:
                cluster.configure(node, self.configure)
            cluster.start(node)

        return ProcessInjection(arena, resolver.nodes(self.node), take, give, self.taken)


def drain(cluster: Cluster, node: str) -> None:
    cluster.run_tool(node, "rabbitmq-upgrade", "drain")
    state = cluster.state(node)
    if state != "paused":
        raise ClusterError(f"{node} was drained and still takes clients: it is {state}")
