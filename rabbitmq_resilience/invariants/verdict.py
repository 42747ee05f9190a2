"""The words in which every judgement is given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, Literal, Protocol

import pyarrow as pa

from rabbitmq_resilience.clusters.spec import Spec
from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.record.alerts import Alerts
from rabbitmq_resilience.record.events import Event
from rabbitmq_resilience.record.metrics import ReadMetrics, no_metrics
from rabbitmq_resilience.record.recorded import Recorded

EXAMPLES_MAX = 10

Number = int | float | str | bool | None


class Verdict(StrEnum):
    """VALID: the promise held. INVALID: it was broken. UNKNOWN: this run cannot tell."""

    VALID = "VALID"
    INVALID = "INVALID"
    UNKNOWN = "UNKNOWN"


def _no_alerts() -> Alerts | None:
    return None


@dataclass(frozen=True, eq=False)
class History:
    """What a run recorded. ``publishes`` starts a fresh pass over the batches of messages and queues (schema
    ``record.routes.OWED``), ``deliveries`` one over those of deliveries (``record.history.DELIVERIES``); ``events`` are
    in the order of time (``record.events``); ``metrics`` reads the named ones of what the brokers said of themselves
    (schema ``record.metrics.SERIES``), without rows if that was not measured; ``recorded`` is what the record has to
    hold, None of a history that was not recorded; ``alerts`` reads those of the user's rules, None where there were no
    rules.
    Two histories are equal only if they are the same object."""

    publishes: Callable[[], Iterable[pa.RecordBatch]]
    deliveries: Callable[[], Iterable[pa.RecordBatch]]
    events: Sequence[Event]
    metrics: ReadMetrics = no_metrics
    recorded: Recorded | None = None
    alerts: Callable[[], Alerts | None] = _no_alerts

    @cached_property
    def facts(self) -> Facts:
        """What the events say; made once for all who ask."""
        return Facts(self.events)


@dataclass(frozen=True)
class Coverage:
    """How much was ``judged`` of what is ``demanded``, in ``unit``: "s" for time, "messages", "alarms" and the like.
    Time of several queues or nodes is that of the one of which the least was judged."""

    judged: float
    demanded: float
    unit: str = "s"

    def as_dict(self) -> dict[str, float]:
        """``judged_s`` and ``demanded_s``, or the same with another unit."""
        return {f"judged_{self.unit}": self.judged, f"demanded_{self.unit}": self.demanded}


@dataclass(frozen=True)
class Finding:
    """The judgement of one invariant or assumption.

    ``summary`` is one sentence for people; ``numbers`` have their unit last in the name; ``examples``
    are at most EXAMPLES_MAX lines that show the first violations: which message, published where and when.
    ``coverage`` tells how much of what is demanded was judged, where that can be counted: what is VALID though
    nothing of it was judged is UNKNOWN to ``judge``.
    """

    verdict: Verdict
    summary: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    coverage: Coverage | None = None


class Invariant(Protocol):
    """A property that must hold. Its fields are its bounds, its ``check`` a pure function."""

    forgives: ClassVar[frozenset[str]]

    def check(self, history: History) -> Finding: ...


class InvariantSpec(Spec):
    """An invariant as a fault file states it: its fields are the bounds."""

    #: The assumptions, by name, that this invariant can do without; it is UNKNOWN where another one fails.
    forgives: ClassVar[frozenset[str]] = frozenset()
    #: Whether it can only be told of a scenario with ``metrics: true``.
    needs_metrics: ClassVar[bool] = False

    @property
    def least_phases(self) -> Mapping[str, float]:
        """How long phases must be at least, in seconds by their names in a fault file, for it to be judged at all."""
        return {}

    @property
    def settled_s(self) -> float:
        """How long the load should go on after recovery for it to be judged in full."""
        return 0.0

    @abstractmethod
    def check(self, history: History) -> Finding: ...


#: What means nothing without an assumption: the whole run; the invariants that do not forgive it; or these, and no run
#: is VALID without it whatever they forgive.
Scope = Literal["run", "invariants", "invariants_and_valid"]


class Assumption(Protocol):
    """What must be true of a run before its invariants mean anything; VALID or UNKNOWN."""

    scope: ClassVar[Scope]

    def check(self, history: History) -> Finding: ...
