"""Sets of times, in microseconds of the run's clock: unions of periods that have their beginning and not their end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import portion

#: From the beginning, which belongs to it, to the end, which does not.
Period = tuple[float, float]

Times: TypeAlias = portion.Interval

NEVER: Times = portion.empty()


def times(periods: Iterable[Period]) -> Times:
    """The union of the periods."""
    return Times(*(portion.closedopen(start, end) for start, end in periods if start < end))


def union(of: Iterable[Times]) -> Times:
    return Times(*(piece for one in of for piece in one))


def periods(of: Times) -> Iterator[Period]:
    """The longest periods of which the set consists, in order."""
    return ((piece.lower, piece.upper) for piece in of if not piece.empty)


def at_least(count: int, sets: Sequence[Times]) -> Times:
    """When ``count`` or more of the sets hold at once."""
    changes = sorted(change for one in sets for start, end in periods(one) for change in ((start, 1), (end, -1)))
    found, holding, begun = [], 0, 0.0
    for t_us, change in changes:
        before, holding = holding, holding + change
        if before < count <= holding:
            begun = t_us
        elif holding < count <= before:
            found.append((begun, t_us))
    return times(found)


def left(span_us: Period, exempt: Times) -> list[Period]:
    """What is left of ``span_us``."""
    return list(periods(times([span_us]) - exempt))


def later(of: Times, *, begin_us: float = 0, end_us: float = 0) -> Times:
    """Each period begins and ends so much later; what would end before it begins is left out."""
    return times((start + begin_us, end + end_us) for start, end in periods(of))
