"""The words in which every judgement is given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol

import pyarrow as pa

from reports.events import Event
from reports.metrics import ReadMetrics, no_metrics
from topologies.spec import Spec

EXAMPLES_MAX = 10

Number = int | float | str | bool | None


class Verdict(StrEnum):
    """VALID: the promise held. INVALID: it was broken. UNKNOWN: this run cannot tell."""

    VALID = "VALID"
    INVALID = "INVALID"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, eq=False)
class History:
    """What a run recorded. ``publishes`` and ``deliveries`` start a fresh pass over the batches
    (schemas in ``reports.history``); ``events`` are in the order of time (``reports.events``);
    ``metrics`` reads the named ones of what the brokers said of themselves (schema ``reports.metrics.SERIES``), without
    rows if that was not measured.
    Two histories are equal only if they are the same object."""

    publishes: Callable[[], Iterable[pa.RecordBatch]]
    deliveries: Callable[[], Iterable[pa.RecordBatch]]
    events: Sequence[Event]
    metrics: ReadMetrics = no_metrics


@dataclass(frozen=True)
class Finding:
    """The judgement of one invariant or assumption.

    ``summary`` is one sentence for people; ``numbers`` have their unit last in the name; ``examples``
    are at most EXAMPLES_MAX lines that show the first violations: which message, published where and when.
    """

    verdict: Verdict
    summary: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    examples: tuple[str, ...] = ()


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

    @abstractmethod
    def check(self, history: History) -> Finding: ...


class Assumption(Protocol):
    """What must be true of a run before its invariants mean anything; VALID or UNKNOWN."""

    #: Whether the whole run means nothing without it, or only the invariants that do not forgive it.
    whole_run: ClassVar[bool]

    def check(self, history: History) -> Finding: ...


def seconds(us: float) -> float:
    """Microseconds as seconds, to the millisecond."""
    return round(us / 1e6, 3)
