"""The words in which every judgement is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import pyarrow as pa

from reports.events import Event

Number = int | float | str | bool | None


class Verdict(StrEnum):
    """VALID: the promise held. INVALID: it was broken. UNKNOWN: this run cannot tell."""

    VALID = "VALID"
    INVALID = "INVALID"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class History:
    """What a run recorded. ``publishes`` and ``deliveries`` start a fresh pass over the batches
    (schemas in ``reports.history``); ``events`` are in the order of time (``reports.events``)."""

    publishes: Callable[[], Iterable[pa.RecordBatch]]
    deliveries: Callable[[], Iterable[pa.RecordBatch]]
    events: Sequence[Event]


@dataclass(frozen=True)
class Finding:
    """The judgement of one invariant or assumption.

    ``summary`` is one sentence for people; ``numbers`` have their unit last in the name; ``examples``
    are at most ten lines that show the first violations: which message, published where and when.
    """

    verdict: Verdict
    summary: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    examples: tuple[str, ...] = ()


class Invariant(Protocol):
    """A property that must hold. Its fields are its bounds, its ``check`` a pure function."""

    def check(self, history: History) -> Finding: ...


class Assumption(Protocol):
    """What must be true of a run before its invariants mean anything; VALID or UNKNOWN."""

    def check(self, history: History) -> Finding: ...
