"""Represent sets of times, in microseconds of the run's clock.

A set is a union of periods. The start of a period belongs to it, the end does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import portion

#: The start, which belongs to the period, and the end, which does not.
Period = tuple[float, float]

Times: TypeAlias = portion.Interval

NEVER: Times = portion.empty()


def times(periods: Iterable[Period]) -> Times:
    """Return the union of the periods."""
    return Times(*(portion.closedopen(start, end) for start, end in periods if start < end))


def union(of: Iterable[Times]) -> Times:
    return Times(*(piece for one in of for piece in one))


def periods(of: Times) -> Iterator[Period]:
    """Return the longest periods of which the set consists, in order."""
    return ((piece.lower, piece.upper) for piece in of if not piece.empty)


def at_least(count: int, sets: Sequence[Times]) -> Times:
    """Return when ``count`` or more of the sets hold at once."""
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
    """Return the parts of ``span_us`` that are not in ``exempt``."""
    return list(periods(times([span_us]) - exempt))


def later(of: Times, *, begin_us: float = 0, end_us: float = 0) -> Times:
    """Return the set with the start and the end of each period moved later by these amounts. A period that would end
    before it begins is left out."""
    return times((start + begin_us, end + end_us) for start, end in periods(of))
