"""Statistics of few repeats: medians with intervals, and whether two settings differ.

No distribution of the noise is assumed. The interval of a median is that of order statistics. The interval of the
difference between two settings is that of Hodges and Lehmann: the inverted Mann-Whitney test, with its exact
distribution. Rates are compared by Fisher's exact test.

Infinity is a value like others and stands for what never came. It is the highest value, and equal to itself.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

#: How often a difference may be reported if there is none.
ALPHA = 0.05

Scale = Literal["ratio", "difference"]
Better = Literal["higher", "lower"]
Word = Literal["better", "worse", "no difference seen", "too few runs"]


@dataclass(frozen=True)
class ConfidenceInterval:
    """The interval from ``low`` to ``high``, around ``middle``. ``level``: how often it holds the truth, at least."""

    low: float
    middle: float
    high: float
    level: float


def median_interval(values: Sequence[float], *, alpha: float = ALPHA) -> ConfidenceInterval:
    """Return an interval for the median of the distribution from which ``values`` are drawn.

    If too few values cannot give the level 1 - alpha, it goes from the lowest to the highest, and ``level`` says what
    that gives. Raise ValueError without values."""
    if not values:
        raise ValueError("a median needs at least one value")
    ordered, n = sorted(values), len(values)
    outside = 0  # how many of 2 ** n equally likely signs leave the median below the k-th value
    k = 0
    while 2 * (outside + math.comb(n, k)) <= Fraction(alpha) * 2**n:
        outside += math.comb(n, k)
        k += 1
    k, outside = (k, outside) if k else (1, 1)
    level = float(1 - Fraction(2 * outside, 2**n))
    return ConfidenceInterval(ordered[k - 1], median_of(ordered), ordered[n - k], max(level, 0.0))


def shift(
    first: Sequence[float], second: Sequence[float], scale: Scale, *, alpha: float = ALPHA
) -> ConfidenceInterval | None:
    """Return by how much ``second`` is larger than ``first``, as a ratio or as a difference.

    None if there are too few values for that level, or if a ratio is asked for and some value is not above 0."""
    if scale == "ratio" and min([*first, *second], default=0) <= 0:
        return None
    apart = sorted(larger_by(a, b, scale) for a, b in itertools.product(first, second))
    below = _critical(len(first), len(second), Fraction(alpha))
    if below is None:
        return None
    k, level = below
    return ConfidenceInterval(apart[k - 1], middle_shift(apart, scale), apart[len(apart) - k], level)


def larger_by(a: float, b: float, scale: Scale) -> float:
    """Return by how much ``b`` is larger than ``a``."""
    if a == b:
        return 1.0 if scale == "ratio" else 0.0
    return b / a if scale == "ratio" else b - a


def median_of(ordered: Sequence[float]) -> float:
    """Return the median of sorted values. It is infinite if half of the runs have no end (infinity)."""
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def middle_shift(ordered: Sequence[float], scale: Scale) -> float:
    """Return the median of sorted shifts.

    A shift has no end if it comes from infinity or leads there; a ratio of 0 is such a one. If one of the two middle
    shifts has no end, return the other one. If they have no end in opposite directions, return "no difference"."""
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    endless = [one for one in (low, high) if math.isinf(one) or (scale == "ratio" and one == 0)]
    if low == high or len(endless) == 1:
        return low if low not in endless else high
    if endless:
        return 1.0 if scale == "ratio" else 0.0
    return (low + high) / 2


def compared(
    first: Sequence[float],
    second: Sequence[float],
    *,
    scale: Scale,
    better: Better,
    alpha: float = ALPHA,
) -> tuple[Word, ConfidenceInterval | None]:
    """Return the word for ``second`` compared with ``first``, and the interval of the shift.

    The word is better or worse only if the interval excludes "no difference". The difference replaces the ratio if
    some value is not above 0."""
    scale = scale_of(scale, first, second)
    shifted = shift(first, second, scale, alpha=alpha)
    return ("too few runs", None) if shifted is None else (word_of(shifted, scale, better), shifted)


def scale_of(scale: Scale, *values: Sequence[float]) -> Scale:
    """Return the scale on which ``values`` can be compared: a difference if one of them is not above 0."""
    return scale if min(itertools.chain(*values), default=1) > 0 else "difference"


def word_of(shifted: ConfidenceInterval, scale: Scale, better: Better) -> Word:
    """Return the word for the interval of a shift."""
    nothing = 1.0 if scale == "ratio" else 0.0
    if shifted.low <= nothing <= shifted.high:
        return "no difference seen"
    return "better" if (shifted.low > nothing) == (better == "higher") else "worse"


def rates_chance(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return the p-value of Fisher's exact test, two-sided, for two (hits, runs).

    It is the probability, at equal true rates, of all distributions of the hits that are not likelier than this one."""
    (hits, runs), (others, other_runs) = first, second
    ways = [
        math.comb(runs, x) * math.comb(other_runs, hits + others - x)
        for x in range(max(0, hits + others - other_runs), min(runs, hits + others) + 1)
    ]
    mine = math.comb(runs, hits) * math.comb(other_runs, others)
    return float(Fraction(sum(way for way in ways if way <= mine), sum(ways)))


def runs_needed(alpha: float = ALPHA) -> int:
    """Return the fewest runs of each of two settings with which any difference can be shown."""
    return next(n for n in itertools.count(1) if enough_runs(n, n, alpha))


def enough_runs(m: int, n: int, alpha: float = ALPHA) -> bool:
    """Return whether m and n runs suffice to show any difference."""
    return _critical(m, n, Fraction(alpha)) is not None


def enough_cells(cells: int, alpha: float = ALPHA) -> bool:
    """Return whether one number of each of ``cells`` cells suffices to show any difference, by ``median_interval``."""
    return Fraction(2, 2**cells) <= Fraction(alpha)


def _critical(m: int, n: int, alpha: Fraction) -> tuple[int, float] | None:
    """Return which of the m * n ordered shifts ends the interval on either side, from 1, and the level.

    That is the highest k with P(U < k) <= alpha / 2. None if there is no such shift."""
    if not m or not n:
        return None
    ways = _ways(m, n)
    whole = math.comb(m + n, m)
    outside, k = 0, 0
    while 2 * (outside + ways[k]) <= alpha * whole:
        outside += ways[k]
        k += 1
    return (k, float(1 - Fraction(2 * outside, whole))) if k else None


@functools.cache
def _ways(m: int, n: int) -> tuple[int, ...]:
    """Return in how many of the orders of m and n values U is 0, 1, ..., m * n.

    U counts the pairs in which the first is the larger. The recursion: the largest value is one of the m, and larger
    than all n, or one of the n."""
    if not m or not n:
        return (1,)
    counts = [0] * (m * n + 1)
    for u, ways in enumerate(_ways(m - 1, n)):
        counts[u + n] += ways
    for u, ways in enumerate(_ways(m, n - 1)):
        counts[u] += ways
    return tuple(counts)
