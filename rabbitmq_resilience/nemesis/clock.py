"""The clock of a broker jumps, as if set by hand, or by a time server after it was wrong for long."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.node_options import NodeOptions
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over, on_each
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.offered import offered
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver, node_problems, possible_nodes
from rabbitmq_resilience.sut.container_protocol import NodeClocks
from rabbitmq_resilience.sut.node_protocol import BrokerTools
from rabbitmq_resilience.workload.workload_base import WorkloadBase

#: Ten years; libfaketime can only shift the machine's clock by a number.
JUMP_MAX_S = 10 * 365 * 86_400
#: A shorter jump could not be distinguished from the time that the question takes.
JUMP_MIN_S = 5
#: How much the expected and the seen jump may differ, in addition to the time that the question took.
TOLERANCE_S = 1.0
BACK_WITHIN_S = 20.0

_ASKED = "{os:system_time(millisecond), erlang:system_time(millisecond)}."


class Clock(ScheduledFault):
    """Real time jumps by ``jump_s``, forwards or (if negative) backwards, and back when the fault heals. Monotonic time
    goes on, as it does if an operator or a time server sets the clock."""

    fault: Literal["clock"] = "clock"
    node: str
    jump_s: Annotated[float, Field(ge=-JUMP_MAX_S, le=JUMP_MAX_S)]

    acts_on: ClassVar[str] = "containers"
    example: ClassVar[str] = "node: b1, jump_s: 3600"

    @model_validator(mode="after")
    def _far_enough(self) -> Self:
        if abs(self.jump_s) < JUMP_MIN_S:
            raise ValueError(
                f"jump_s: {self.jump_s:g} is less than {JUMP_MIN_S} s either way, too short a jump to be seen"
            )
        return self

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        return node_problems(self.node, topology, workload)

    def footprint(self, topology: Topology) -> Footprint:
        nodes = frozenset(possible_nodes(self.node, topology))
        return Footprint(
            targets=(self.node,),
            resources=frozenset(f"the clock of {node}" for node in nodes),
            node_options=NodeOptions(clocks=nodes),
            needs=frozenset({"libfaketime"}),
        )

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> ClockInjection:  # noqa: ARG002 - one form for all
        return ClockInjection(context, resolver.nodes(self.node), self.jump_s)


class Ahead(NamedTuple):
    """How far the times of a node are ahead of this machine's: its operating system's time and its Erlang VM's time.
    The Erlang VM may run slower or faster instead of letting its time jump. ``vague_s`` is half of the time that the
    question took."""

    system_s: float
    erlang_s: float
    vague_s: float

    def __str__(self) -> str:
        return f"{self.system_s:+.1f} s, by Erlang's own time {self.erlang_s:+.1f} s"


@dataclass
class ClockInjection:
    context: FaultContext
    nodes: tuple[str, ...]
    jump_s: float
    #: How far each clock was ahead before, as another step may have turned the same clock.
    _before: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def effect(self) -> Effect:
        """Return no effect: no node is away, and no link is slow."""
        return Effect()

    def inject(self) -> None:
        clocks = offered(self.context.cluster, NodeClocks)
        for node in self.nodes:
            self._before[node] = ahead(self.context.cluster, node).system_s
            clocks.turn_clock(node, by_s=self.jump_s)

    def heal(self) -> None:
        clocks = offered(self.context.cluster, NodeClocks)
        on_each(self._before, lambda node: clocks.turn_clock(node, by_s=-self.jump_s))

    def prove(self, *, timeout_s: float) -> Proof:
        return self._await(self.jump_s, timeout_s=timeout_s)

    def prove_healed(self) -> Proof:
        return self._await(0.0, timeout_s=BACK_WITHIN_S)

    def _await(self, jump_s: float, *, timeout_s: float) -> Proof:
        """Return a proof that every broker's clock differs by ``jump_s`` from its time before."""
        times: dict[str, Ahead] = {}

        def elsewhere() -> list[str]:
            wrong = []
            for node in self.nodes:
                now = times[node] = ahead(self.context.cluster, node)
                if abs(now.system_s - self._before[node] - jump_s) > TOLERANCE_S + now.vague_s:
                    wrong.append(f"the clock of {node} is {now}")
            return wrong

        still = left_over(elsewhere, timeout_s=timeout_s, what="clocks to jump")
        return Proof(not still, "; ".join(still or [f"the clock of {node} is {now}" for node, now in times.items()]))


def ahead(cluster: BrokerTools, node: str) -> Ahead:
    """Return how far the broker's own times are ahead. Raise ``ClusterError`` if the broker does not report them."""
    asked_s = time.time()
    answer = cluster.run_tool(node, "rabbitmqctl", "eval", _ASKED)
    answered_s = time.time()
    times = re.fullmatch(r"\{(\d+),\s*(\d+)\}", answer.strip())
    if times is None:
        raise ClusterError(f"{node} does not report its time: {answer.strip()[:200]}")
    between_s, vague_s = (asked_s + answered_s) / 2, (answered_s - asked_s) / 2
    system_s, erlang_s = (int(ms) / 1000 - between_s for ms in times.groups())
    return Ahead(system_s, erlang_s, vague_s)
