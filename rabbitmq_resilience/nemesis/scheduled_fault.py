"""The base class of every step of a schedule: when it begins, how long it lasts, and what others must know of its
fault.

A fault is a subclass with its own fields and ``fault: Literal["its_name"]``. The methods here are defaults that fit
most faults.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.conditions import When
from rabbitmq_resilience.nemesis.fault import FaultContext, Injection
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.workload.workload_base import WorkloadBase

SECONDS_MAX = 86_400
#: How long a condition may take to become true by default.
CONDITION_PATIENCE_S = 120.0
Seconds = Annotated[float, Field(ge=0, le=SECONDS_MAX)]


LASTS_S_MAX = 86_400.0
#: Stands for ``for_s`` if a step gives only ``for_ticks``, until the cluster's ``net_ticktime`` is known.
TICKS_NOT_KNOWN_S = LASTS_S_MAX


class ScheduledFault(Spec):
    """A step begins ``at_s`` seconds after the end of the steady phase, or once ``when`` holds; give one of the two.
    ``for_s`` is how long the fault lasts before it is healed. ``for_ticks`` gives that time in multiples of the
    cluster's ``net_ticktime``, by which brokers notice a silent peer, so it fits any cluster. A condition may take at
    least 120 s to become true, or ``chaos_s`` if the phases give it. That time counts from the latest end of the step
    that it waits for. If the condition does not become true, the step is skipped and the run is UNKNOWN."""

    if TYPE_CHECKING:
        fault: str

    at_s: Seconds | None = None
    when: When | None = None
    for_s: Annotated[float, Field(gt=0, le=LASTS_S_MAX)]
    for_ticks: Annotated[float, Field(gt=0, le=100)] | None = None

    #: The capability that a driver must offer for this fault (``sut.drivers``).
    acts_on: ClassVar[str]
    #: An example of the fault's own fields for people, in YAML.
    example: ClassVar[str] = ""
    #: Whether a broker itself must do something for the fault, which it can do once it has been up for long.
    needs_calm: ClassVar[bool] = False
    #: Whether the fault acts on the whole machine, so that no other scenario may be played there meanwhile.
    takes_the_machine: ClassVar[bool] = False
    #: How long a busy broker may take to begin. The time that the fault lasts counts only from then.
    begins_within_s: ClassVar[float] = 0.0
    #: How long the healing may take.
    heals_within_s: ClassVar[float] = 0.0

    @model_validator(mode="before")
    @classmethod
    def _lasts_for_ticks(cls, stated: Any) -> Any:
        """Allow ``for_ticks`` without ``for_s``. The scenario, which knows its cluster, sets ``for_s`` later."""
        if isinstance(stated, Mapping) and "for_s" not in stated and "for_ticks" in stated:
            return {**stated, "for_s": TICKS_NOT_KNOWN_S}
        return stated

    @model_validator(mode="after")
    def _one_beginning(self) -> Self:
        if (self.at_s is None) == (self.when is None):
            raise ValueError("a step begins either at a time (at_s: 5) or when: something is true; give one of them")
        return self

    @property
    def ability(self) -> str:
        """Return the ability that a driver must offer for this step. By default it is that of the fault."""
        return self.acts_on

    @property
    def ends_s(self) -> float | None:
        """Return when a timed step ends, or None if the step waits for a condition."""
        return None if self.at_s is None else self.at_s + self.for_s

    @abstractmethod
    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> Injection:
        """Choose the targets now. Raise TargetError if there is none at this moment."""

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:  # noqa: ARG002 - for others to use
        """Return what is wrong with the targets as {field: text}; empty if they are right."""
        return {}

    def footprint(self, topology: Topology) -> Footprint:
        """Return what the step may touch. By default these are the processes of the nodes that the field ``node``
        means, and nothing if there is no such field. It is called for steps without ``problems``."""
        node = getattr(self, "node", None)
        return Footprint() if node is None else Footprint.of_nodes(node, topology)

    def can_be_seen(self, *, alone_s: float, slow_s: float) -> bool:  # noqa: ARG002 - for others to use
        """Return whether the proof can see the fault on a link that the step touches. No other step silences the link
        for ``alone_s`` without a break, and others make it slower by ``slow_s``."""
        return True


def ends_by_s(schedule: Sequence[ScheduledFault]) -> tuple[float, ...]:
    """Return when each step is over at the latest, in seconds from the end of the steady phase. If a condition waits
    for another step, its time counts from the end of that step."""
    ends_s: list[float] = []
    for step in schedule:
        after = step.when.after_step if step.when is not None else None
        since_s = ends_s[after.step] + after.wait_s if after is not None and after.step < len(ends_s) else 0.0
        ends_s.append(since_s + CONDITION_PATIENCE_S + step.for_s if step.ends_s is None else step.ends_s)
    return tuple(ends_s)
