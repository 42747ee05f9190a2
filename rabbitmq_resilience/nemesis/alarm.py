"""Brokers raise an alarm, as if they ran out of memory or disk. Publishing is blocked on all nodes until it clears."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.broker_changes import BrokerChange
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over, on_each
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver, node_problems, possible_nodes, size_of
from rabbitmq_resilience.sut.broker.management import ALARMS, ApiError, ApiUnreachable
from rabbitmq_resilience.workload.workload_base import WorkloadBase

Resource = Literal["memory", "disk"]

#: More than any disk has free.
IMPOSSIBLE_BYTES = 10**18
LIMITS_SHOWN_WITHIN_S = 15.0
CLEARED_WITHIN_S = 20.0


@dataclass(frozen=True)
class AlarmThreshold:
    """How to make a broker raise the alarm, and how it shows the alarm: names of ``/api/nodes``."""

    shown: str
    alarm: str
    command: str
    #: The limit that raises the alarm at once: as the API shows it, and the arguments that set and restore it.
    impossible_bytes: int
    impossible: tuple[str, ...]
    restored: tuple[str, ...]


LIMITS: Mapping[Resource, AlarmThreshold] = {
    "memory": AlarmThreshold(
        shown="mem_limit",
        alarm=ALARMS["memory"],
        command="set_vm_memory_high_watermark",
        impossible_bytes=0,
        impossible=("0",),
        restored=("absolute",),
    ),
    "disk": AlarmThreshold(
        shown="disk_free_limit",
        alarm=ALARMS["disk"],
        command="set_disk_free_limit",
        impossible_bytes=IMPOSSIBLE_BYTES,
        impossible=(str(IMPOSSIBLE_BYTES),),
        restored=(),
    ),
}


class Alarm(ScheduledFault):
    """The limit of the resource is set so that the node exceeds it, and set back later. Source of the commands:
    rabbitmqctl(8); a memory limit of 0 blocks all publishing."""

    fault: Literal["alarm"] = "alarm"
    node: str
    resource: Resource

    acts_on: ClassVar[str] = "processes"

    example: ClassVar[str] = "node: a1, resource: memory"
    needs_calm: ClassVar[bool] = True
    #: A command takes a second, or ten on a busy machine. Nodes report its effect every five seconds.
    begins_within_s: ClassVar[float] = 12.0
    heals_within_s: ClassVar[float] = 25.0

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        return node_problems(self.node, topology, workload)

    def footprint(self, topology: Topology) -> Footprint:
        """Return the limits of the nodes, and the alarm: that of any node blocks on all."""
        return Footprint(
            settings_of=frozenset(possible_nodes(self.node, topology)),
            resources=frozenset({f"the alarm of {self.resource}"}),
            acts={"alarm": size_of(self.node, topology)},
        )

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> AlarmInjection:  # noqa: ARG002 - one form for all
        return AlarmInjection(context, resolver.nodes(self.node), self.resource)


@dataclass
class AlarmInjection:
    context: FaultContext
    nodes: tuple[str, ...]
    resource: Resource
    #: The earlier limits in bytes, by node.
    _limits: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def effect(self) -> Effect:
        return Effect(nodes_alarmed=self.nodes, alarm=self.resource)

    def inject(self) -> None:
        limit = LIMITS[self.resource]
        unknown = left_over(self._without_limit, timeout_s=LIMITS_SHOWN_WITHIN_S, what="the limits to be reported")
        if unknown:
            raise ClusterError("; ".join(unknown))
        raised = [node for node in self.nodes if (row := self._row(node)) is not None and row[limit.alarm]]
        if raised:
            raise ClusterError(f"{', '.join(raised)} had its {self.resource} alarm before the step began")
        for node in self.nodes:
            self.context.cluster.change(node, self._change(node))

    def heal(self) -> None:
        on_each(self._limits, lambda node: self.context.cluster.change_back(node, self._change(node)))

    def prove(self, *, timeout_s: float) -> Proof:
        return self._await(alarmed=True, timeout_s=timeout_s)

    def prove_healed(self) -> Proof:
        return self._await(alarmed=False, timeout_s=CLEARED_WITHIN_S)

    def _change(self, node: str) -> BrokerChange:
        limit = LIMITS[self.resource]
        return BrokerChange(
            "alarm",
            f"{self.resource}-alarm",
            do=("rabbitmqctl", limit.command, *limit.impossible),
            undo=("rabbitmqctl", limit.command, *limit.restored, str(self._limits[node])),
            alarm=self.resource,
        )

    def _await(self, *, alarmed: bool, timeout_s: float) -> Proof:
        """Return a proof that each node has its alarm with the limit that this step has set, or no alarm and its
        earlier limit."""
        found: dict[str, str] = {}

        def others() -> list[str]:
            complaints = [self._complaint(node, self._row(node), found, alarmed=alarmed) for node in self.nodes]
            return [text for text in complaints if text]

        word = "has" if alarmed else "has no"
        still = left_over(others, timeout_s=timeout_s, what=f"that each node {word} alarm")
        return Proof(not still, "; ".join(still or found.values()))

    def _complaint(self, node: str, row: Mapping[str, Any] | None, found: dict[str, str], *, alarmed: bool) -> str:
        if row is None:
            return f"{node} does not report its alarms"
        limit = LIMITS[self.resource]
        has, shown = bool(row[limit.alarm]), int(row[limit.shown])
        found[node] = f"{node} {'has' if has else 'has no'} {self.resource} alarm, and a limit of {shown:,} bytes"
        demanded = limit.impossible_bytes if alarmed else self._limits[node]
        return "" if (has, shown) == (alarmed, demanded) else f"not as it should be: {found[node]}"

    def _without_limit(self) -> list[str]:
        limit = LIMITS[self.resource]
        for node in self.nodes:
            row = self._row(node)
            if row is not None:  # keep the value that an earlier step found: the row may still show that step's limit
                self._limits[node] = self.context.limits.setdefault((node, self.resource), int(row[limit.shown]))
        return [f"{node} does not report its {limit.shown}" for node in self.nodes if node not in self._limits]

    def _row(self, node: str) -> Mapping[str, Any] | None:
        """Return what the node reports of itself, or None while its alarm or limit is missing."""
        cluster = self.context.cluster
        try:
            rows = cluster.api(node).nodes()
        except (ApiError, ApiUnreachable):
            return None
        mine = next((row for row in rows if row["name"] == cluster.broker_name(node)), {})
        limit = LIMITS[self.resource]
        return mine if limit.alarm in mine and limit.shown in mine else None
