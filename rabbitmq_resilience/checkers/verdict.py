"""Define the types in which every judgement is given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, Literal, Protocol

import pyarrow as pa

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.history.events import Event
from rabbitmq_resilience.history.expected_record import Recorded
from rabbitmq_resilience.history.metrics import ReadMetrics, no_metrics
from rabbitmq_resilience.history.recorded_alerts import RecordedAlerts
from rabbitmq_resilience.model.base import Spec

EXAMPLES_MAX = 10

Number = int | float | str | bool | None


class Verdict(StrEnum):
    """VALID: the promise was kept. INVALID: it was broken. UNKNOWN: this run cannot show which."""

    VALID = "VALID"
    INVALID = "INVALID"
    UNKNOWN = "UNKNOWN"


def _no_alerts() -> RecordedAlerts | None:
    return None


@dataclass(frozen=True, eq=False)
class History:
    """What a run recorded. Two histories are equal only if they are the same object.

    ``publishes`` starts a new pass over the batches of messages and queues (schema ``history.routes.OWED``),
    ``deliveries`` a new pass over the batches of deliveries (``history.history.DELIVERIES``). ``events`` are in the
    order of time (``history.events``). ``metrics`` reads the named metrics of the brokers (schema
    ``history.metrics.SERIES``); it has no rows if they were not measured. ``recorded`` is what the record has to hold;
    it is None for a history that was not recorded. ``alerts`` reads the alerts of the user's rules; it gives None if
    there were no rules.
    """

    publishes: Callable[[], Iterable[pa.RecordBatch]]
    deliveries: Callable[[], Iterable[pa.RecordBatch]]
    events: Sequence[Event]
    metrics: ReadMetrics = no_metrics
    recorded: Recorded | None = None
    alerts: Callable[[], RecordedAlerts | None] = _no_alerts

    @cached_property
    def facts(self) -> Facts:
        """Return what the events say. It is computed once."""
        return Facts(self.events)


@dataclass(frozen=True)
class Coverage:
    """How much of what is ``demanded`` was ``judged``, in ``unit``: "s" for time, "messages", "alarms" and the like.
    Time of several queues or nodes is that of the least judged one."""

    judged: float
    demanded: float
    unit: str = "s"

    def as_dict(self) -> dict[str, float]:
        """Return ``judged_s`` and ``demanded_s``, or the same names with another unit."""
        return {f"judged_{self.unit}": self.judged, f"demanded_{self.unit}": self.demanded}


@dataclass(frozen=True)
class Finding:
    """The judgement of one invariant or assumption.

    ``summary`` is one sentence for people. ``numbers`` have their unit last in the name. ``examples`` are at most
    EXAMPLES_MAX lines that show the first violations: which message, published to which queue and when. ``coverage``
    says how much of what is demanded was judged, if that can be counted. A VALID finding of which nothing was judged
    becomes UNKNOWN in ``judge``.
    """

    verdict: Verdict
    summary: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    coverage: Coverage | None = None


class Checker(Protocol):
    """A property that must hold. Its fields are its bounds; its ``check`` is a pure function."""

    forgives: ClassVar[frozenset[str]]

    def check(self, history: History) -> Finding: ...


class InvariantSpec(Spec):
    """An invariant as a fault file states it; its fields are the bounds."""

    #: The names of the assumptions that this invariant can do without. It is UNKNOWN if another assumption fails.
    forgives: ClassVar[frozenset[str]] = frozenset()
    #: Whether the invariant can only be judged if the scenario has ``metrics: true``.
    needs_metrics: ClassVar[bool] = False

    @property
    def least_phases(self) -> Mapping[str, float]:
        """Return how long phases must last at least for the invariant to be judged at all: in seconds, by the phases'
        names in a fault file."""
        return {}

    @property
    def settled_s(self) -> float:
        """Return for how many seconds the load should go on after recovery, to judge the invariant in full."""
        return 0.0

    def last_confirms_s(self, *, net_ticktime_s: float, confirm_timeout_s: float, nodes: int) -> float:  # noqa: ARG002 - one form for all
        """Return for how many seconds the last confirms may stay away at the end of publishing before the invariant is
        broken; 0 if it has no such bound."""
        return 0.0

    @abstractmethod
    def check(self, history: History) -> Finding: ...


#: What becomes UNKNOWN if an assumption fails. ``run``: the whole run. ``invariants``: the invariants that do not
#: forgive it. ``invariants_and_valid``: these invariants, and each run that would be VALID.
Scope = Literal["run", "invariants", "invariants_and_valid"]


class Assumption(Protocol):
    """A condition that must be true of a run before its invariants mean anything. Its verdict is VALID or UNKNOWN."""

    scope: ClassVar[Scope]

    def check(self, history: History) -> Finding: ...
