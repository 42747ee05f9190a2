"""What few repeats can tell: the median with an interval, and whether two settings differ.

Nothing is assumed of how noise is distributed. The interval of a median is that of order statistics, the one between
two settings that of Hodges and Lehmann: the Mann-Whitney test turned round, with its exact distribution. Rates are
compared by Fisher's exact test.

Infinity is a value like others: of what never came. It is the highest there is, and no difference from itself.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

#: How often a difference may be told where there is none.
ALPHA = 0.05

Scale = Literal["ratio", "difference"]
Better = Literal["higher", "lower"]
Word = Literal["better", "worse", "no difference seen", "too few runs"]


@dataclass(frozen=True)
class Interval:
    """From ``low`` to ``high``, around ``middle``; ``level``: how often such an interval holds the truth at least."""

    low: float
    middle: float
    high: float
    level: float


def median_interval(values: Sequence[float], *, alpha: float = ALPHA) -> Interval:
    """The median of what ``values`` (one at least) are drawn from. Where so few cannot give 1 - alpha it goes from the
    lowest to the highest, and ``level`` is what those give. Raises ValueError without values."""
    if not values:
        raise ValueError("there is no median of nothing")
    ordered, n = sorted(values), len(values)
    outside = 0  # how many of 2 ** n equally likely signs leave the median below the k-th value
    k = 0
    while 2 * (outside + math.comb(n, k)) <= Fraction(alpha) * 2**n:
        outside += math.comb(n, k)
        k += 1
    k, outside = (k, outside) if k else (1, 1)
    level = float(1 - Fraction(2 * outside, 2**n))
    return Interval(ordered[k - 1], median_of(ordered), ordered[n - k], max(level, 0.0))


def shift(first: Sequence[float], second: Sequence[float], scale: Scale, *, alpha: float = ALPHA) -> Interval | None:
    """By how much ``second`` is larger than ``first``: as a ratio, or as a difference. None where so few values can
    never tell at that level, or a ratio is asked for where something is not above 0."""
    if scale == "ratio" and min([*first, *second], default=0) <= 0:
        return None
    apart = sorted(larger_by(a, b, scale) for a, b in itertools.product(first, second))
    below = _critical(len(first), len(second), Fraction(alpha))
    if below is None:
        return None
    k, level = below
    return Interval(apart[k - 1], middle_shift(apart), apart[len(apart) - k], level)


def larger_by(a: float, b: float, scale: Scale) -> float:
    """By how much ``b`` is larger than ``a``."""
    if a == b:
        return 1.0 if scale == "ratio" else 0.0
    return b / a if scale == "ratio" else b - a


def median_of(ordered: Sequence[float]) -> float:
    """Of sorted values. What never came in half of the runs is never: it is longer than everything."""
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def middle_shift(ordered: Sequence[float]) -> float:
    """The median of sorted shifts. Between two that are infinitely far apart it is the one nearer to 0, as both ways
    are as likely then."""
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if math.isinf(low) or math.isinf(high):
        return min(low, high, key=abs)
    return (low + high) / 2


def compared(
    first: Sequence[float],
    second: Sequence[float],
    *,
    scale: Scale,
    better: Better,
    alpha: float = ALPHA,
) -> tuple[Word, Interval | None]:
    """What is to be said of ``second`` beside ``first``: that there is a difference only where the interval says so.
    The difference is told instead of the ratio where something is not above 0."""
    scale = scale_of(scale, first, second)
    told = shift(first, second, scale, alpha=alpha)
    return ("too few runs", None) if told is None else (word_of(told, scale, better), told)


def scale_of(scale: Scale, *values: Sequence[float]) -> Scale:
    """That by which ``values`` can be compared: there are no ratios to what is not above 0."""
    return scale if min(itertools.chain(*values), default=1) > 0 else "difference"


def word_of(told: Interval, scale: Scale, better: Better) -> Word:
    """Of the interval of a shift."""
    nothing = 1.0 if scale == "ratio" else 0.0
    if told.low <= nothing <= told.high:
        return "no difference seen"
    return "better" if (told.low > nothing) == (better == "higher") else "worse"


def rates_chance(first: tuple[int, int], second: tuple[int, int]) -> float:
    """How likely it is, where both have the same rate, that hits are dealt to (hits, runs) as unequally: Fisher's exact
    test, two-sided, by all dealings that are not likelier than this one."""
    (hits, runs), (others, other_runs) = first, second
    ways = [
        math.comb(runs, x) * math.comb(other_runs, hits + others - x)
        for x in range(max(0, hits + others - other_runs), min(runs, hits + others) + 1)
    ]
    mine = math.comb(runs, hits) * math.comb(other_runs, others)
    return float(Fraction(sum(way for way in ways if way <= mine), sum(ways)))


def runs_needed(alpha: float = ALPHA) -> int:
    """The fewest runs of each of two settings by which any difference can be told."""
    return next(n for n in itertools.count(1) if can_tell(n, n, alpha))


def can_tell(m: int, n: int, alpha: float = ALPHA) -> bool:
    """Whether any difference between m and n runs can be told."""
    return _critical(m, n, Fraction(alpha)) is not None


def can_tell_together(cells: int, alpha: float = ALPHA) -> bool:
    """Whether any difference can be told from one number each of so many cells, by ``median_interval``."""
    return Fraction(2, 2**cells) <= Fraction(alpha)


def _critical(m: int, n: int, alpha: Fraction) -> tuple[int, float] | None:
    """Which of the m * n ordered pairs ends the interval on either side, from 1, and its level; None if no pair does.
    It is the highest k with P(U < k) <= alpha / 2."""
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
    """In how many of the orders of m and n values U is 0, 1, ..., m * n: U counts the pairs in which the first is the
    larger. The largest value is one of the m, and larger than all n, or one of the n."""
    if not m or not n:
        return (1,)
    counts = [0] * (m * n + 1)
    for u, ways in enumerate(_ways(m - 1, n)):
        counts[u + n] += ways
    for u, ways in enumerate(_ways(m, n - 1)):
        counts[u] += ways
    return tuple(counts)
