"""Brokers raise an alarm, as one does that runs out of memory or disk: nobody may publish anywhere until it clears."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from faults.fault import Arena, Effect, Proof, left_over, on_each
from faults.step import Step
from faults.targets import Resolver, node_problems
from topologies.cluster import ClusterError
from topologies.management import ApiError, ApiUnreachable
from topologies.spec import Topology
from workloads.spec import Workload

Resource = Literal["memory", "disk"]

#: More than any disk has free.
IMPOSSIBLE_BYTES = 10**18
LIMITS_TOLD_WITHIN_S = 15.0
CLEARED_WITHIN_S = 20.0


@dataclass(frozen=True)
class Limit:
    """How a broker is told when to raise the alarm, and how it shows that it has: names of ``/api/nodes``."""

    shown: str
    alarm: str
    command: str
    #: Arguments that raise the alarm at once, and those that put the limit back.
    impossible: tuple[str, ...]
    restored: tuple[str, ...]


LIMITS: Mapping[Resource, Limit] = {
    "memory": Limit("mem_limit", "mem_alarm", "set_vm_memory_high_watermark", ("0",), ("absolute",)),
    "disk": Limit("disk_free_limit", "disk_free_alarm", "set_disk_free_limit", (str(IMPOSSIBLE_BYTES),), ()),
}


class Alarm(Step):
    """The limit of the resource is set so that the node is beyond it, and put back. Source of the commands:
    rabbitmqctl(8); a limit of 0 blocks all publishing."""

    fault: Literal["alarm"] = "alarm"
    node: str
    resource: Resource

    acts_on: ClassVar[str] = "processes"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        return node_problems(self.node, topology, workload)

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> AlarmInjection:  # noqa: ARG002
        return AlarmInjection(arena, resolver.nodes(self.node), self.resource)


@dataclass
class AlarmInjection:
    arena: Arena
    nodes: tuple[str, ...]
    resource: Resource
    #: The limits of before, in bytes, by node.
    _limits: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def effect(self) -> Effect:
        return Effect(nodes_alarmed=self.nodes, alarm=self.resource)

    def inject(self) -> None:
        limit = LIMITS[self.resource]
        untold = left_over(self._untold, timeout_s=LIMITS_TOLD_WITHIN_S, what="the limits to be told")
        if untold:
            raise ClusterError("; ".join(untold))
        for node in self.nodes:
            self.arena.cluster.run_tool(node, "rabbitmqctl", limit.command, *limit.impossible)

    def heal(self) -> None:
        limit = LIMITS[self.resource]

        def restore(node: str) -> None:
            self.arena.cluster.run_tool(node, "rabbitmqctl", limit.command, *limit.restored, str(self._limits[node]))

        on_each(self._limits, restore)

    def prove(self, *, timeout_s: float) -> Proof:
        return self._await(alarmed=True, timeout_s=timeout_s)

    def prove_healed(self) -> Proof:
        return self._await(alarmed=False, timeout_s=CLEARED_WITHIN_S)

    def _await(self, *, alarmed: bool, timeout_s: float) -> Proof:
        word = "has" if alarmed else "has no"

        def others() -> list[str]:
            rows = {node: self._row(node) for node in self.nodes}
            told = [f"{node} does not tell" for node, row in rows.items() if row is None]
            wrong = [n for n, row in rows.items() if row is not None and row[LIMITS[self.resource].alarm] != alarmed]
            return told + [f"it is not so that {node} {word} {self.resource} alarm" for node in wrong]

        still = left_over(others, timeout_s=timeout_s, what=f"that each node {word} alarm")
        return Proof(not still, "; ".join(still) or f"{', '.join(self.nodes)} {word} {self.resource} alarm")

    def _untold(self) -> list[str]:
        limit = LIMITS[self.resource]
        for node in self.nodes:
            row = self._row(node)
            if row is not None:  # what an earlier step found, as what is shown may still be what that one set
                self._limits[node] = self.arena.limits.setdefault((node, self.resource), int(row[limit.shown]))
        return [f"{node} does not tell its {limit.shown}" for node in self.nodes if node not in self._limits]

    def _row(self, node: str) -> Mapping[str, Any] | None:
        """What the node says of itself; None while it does not say it all."""
        cluster = self.arena.cluster
        try:
            rows = cluster.api(node).nodes()
        except (ApiError, ApiUnreachable):
            return None
        mine = next((row for row in rows if row["name"] == cluster.broker_name(node)), {})
        limit = LIMITS[self.resource]
        return mine if limit.alarm in mine and limit.shown in mine else None
