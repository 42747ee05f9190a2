"""What every step of a schedule is: when it begins, how long it lasts, and what others must know of its fault.

A fault is a subclass with its own fields, and ``fault: Literal["its_name"]``. What a step does not say of itself has a
default here that fits most faults.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.clusters.equipment import NONE, Equipment
from rabbitmq_resilience.clusters.spec import Link, Spec, Topology
from rabbitmq_resilience.faults.conditions import When
from rabbitmq_resilience.faults.fault import FaultContext, Injection
from rabbitmq_resilience.faults.targets import Resolver
from rabbitmq_resilience.workloads.spec import Workload

SECONDS_MAX = 86_400
#: How long a condition may take to come true where nothing else is said.
CONDITION_PATIENCE_S = 120.0
Seconds = Annotated[float, Field(ge=0, le=SECONDS_MAX)]


LASTS_S_MAX = 86_400.0
#: Stands where a step says how long it lasts in ticks alone, until these are known.
TICKS_NOT_KNOWN_S = LASTS_S_MAX


class Step(Spec):
    """``at_s`` counts from the end of the steady phase; ``when`` waits for a condition instead. A step has one of them.
    ``for_s`` is how long it lasts; then it heals. ``for_ticks`` says that in times of the cluster's ``net_ticktime``,
    by which brokers notice that a peer is silent: so it fits any cluster. A condition has 120 s to come true at least,
    counted from where the step after which it comes is over at the latest, or ``chaos_s`` of the phases if that is
    given; a step whose condition does not is skipped, and the run is UNKNOWN."""

    if TYPE_CHECKING:
        fault: str

    at_s: Seconds | None = None
    when: When | None = None
    for_s: Annotated[float, Field(gt=0, le=LASTS_S_MAX)]
    for_ticks: Annotated[float, Field(gt=0, le=100)] | None = None

    #: What a driver must offer for it (``clusters.drivers``).
    acts_on: ClassVar[str]
    #: Its own fields as an example for people, in YAML.
    example: ClassVar[str] = ""
    #: It makes the links that it touches slower, and lets all pass.
    slows_links: ClassVar[bool] = False
    #: A broker itself must do something for it, and can do so once it has long been up.
    needs_calm: ClassVar[bool] = False
    #: It acts on all that runs on the machine, so that no other scenario may be played there meanwhile.
    takes_the_machine: ClassVar[bool] = False
    #: How long a busy broker may take until it begins, and only then the time for which it lasts.
    begins_within_s: ClassVar[float] = 0.0
    #: How long it may take to heal it.
    heals_within_s: ClassVar[float] = 0.0

    @model_validator(mode="before")
    @classmethod
    def _lasts_for_ticks(cls, stated: Any) -> Any:
        """How long that is the scenario says, which knows its cluster."""
        if isinstance(stated, Mapping) and "for_s" not in stated and "for_ticks" in stated:
            return {**stated, "for_s": TICKS_NOT_KNOWN_S}
        return stated

    @model_validator(mode="after")
    def _one_beginning(self) -> Self:
        if (self.at_s is None) == (self.when is None):
            raise ValueError("a step begins either at a time (at_s: 5) or when: something is true; give one of them")
        return self

    @property
    def ends_s(self) -> float | None:
        """When a timed step ends; None for one that waits for a condition."""
        return None if self.at_s is None else self.at_s + self.for_s

    @abstractmethod
    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> Injection:
        """Choose the targets now. Raises TargetError if there is none at this moment."""

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:  # noqa: ARG002 - for others to use
        """What is wrong with the targets: {field: text}. Empty if nothing is."""
        return {}

    def acts(self, topology: Topology) -> Mapping[str, int]:  # noqa: ARG002 - for others to use
        """What is done to brokers, in the words of ``clusters.attached.spec.ACTS``, and at how many nodes at most.
        Empty where only clients, their links and the queues of the run are touched."""
        return {}

    @property
    def unsettles(self) -> bool:
        """Whether nodes may end, pause or start again for it, and queues look for other leaders."""
        return False

    def leaves_majority(self, topology: Topology) -> bool:  # noqa: ARG002 - for others to use
        """Whether some node serves beside it, if no other step is at work."""
        return True

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that it is written with, see ``faults.targets``."""
        return ()

    def claims(self, topology: Topology) -> frozenset[str]:  # noqa: ARG002 - for others to use
        """What only one step may act on at a time, in words, as nothing could tell two apart. Nodes and clients are
        ``touches_processes``."""
        return frozenset()

    def can_be_seen(self, *, alone_s: float, slow_s: float) -> bool:  # noqa: ARG002 - for others to use
        """Whether its proof can tell it on a link that it touches, which no other step silences for ``alone_s`` at a
        stretch, and others make slower by ``slow_s``."""
        return True

    @property
    def slows_by_s(self) -> float:
        """By how much it makes the links that it touches slower, at most."""
        return 0.0

    def touches_links(self, topology: Topology) -> frozenset[Link]:  # noqa: ARG002 - for others to use
        """Every link that it may touch, known before the cluster starts."""
        return frozenset()

    def touches_packets(self, topology: Topology) -> frozenset[Link]:  # noqa: ARG002 - for others to use
        """Every link whose packets it may act on, which must carry no proxy."""
        return frozenset()

    def touches_processes(self, topology: Topology) -> frozenset[str]:  # noqa: ARG002 - for others to use
        """The nodes and clients whose process it acts on, as far as no moment and no chance decides them."""
        return frozenset()

    def may_touch_processes(self, topology: Topology) -> frozenset[str]:
        """The same, and all that it may mean by moment or chance."""
        return self.touches_processes(topology)

    def may_act_on(self, topology: Topology) -> frozenset[str]:
        """The nodes to which its ``acts`` may be done, but for those on links."""
        return self.may_touch_processes(topology)

    def equipment(self, topology: Topology) -> Equipment:  # noqa: ARG002 - for others to use
        """What nodes must be given before the cluster starts so that it can act on it."""
        return NONE

    @property
    def needs(self) -> frozenset[str]:
        """What must be there for it beside the cluster, or of it: "pumba", "netem" in the kernel, the image of
        "stress-ng", "libfaketime", the images of ``clusters.broker.versions``. Looked for before the start."""
        return frozenset()

    @property
    def becomes(self) -> str | None:
        """The broker version or image that its nodes have afterwards; None if it leaves that alone."""
        return None


def ends_by_s(schedule: Sequence[Step]) -> tuple[float, ...]:
    """When each step is over at the latest, in seconds from the end of the steady phase. A condition that comes after
    another step has its time from when that one is over."""
    ends_s: list[float] = []
    for step in schedule:
        after = step.when.after_step if step.when is not None else None
        since_s = ends_s[after.step] + after.wait_s if after is not None and after.step < len(ends_s) else 0.0
        ends_s.append(since_s + CONDITION_PATIENCE_S + step.for_s if step.ends_s is None else step.ends_s)
    return tuple(ends_s)
