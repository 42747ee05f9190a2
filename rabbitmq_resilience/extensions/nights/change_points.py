"""Find where a series of numbers, one for each night, changed its level.

A stretch of nights is cut in two so that the squared distances from the means of the two parts are least; the library
ruptures finds that cut. The cut is accepted only if chance hardly explains it: at most one in a thousand shuffles of
the same values gives a cut as good. Both parts are searched in the same way. Before that, each value is replaced by its
distance from the median, in units of the usual distance, and bounded, so that one bad night moves no mean.

No distribution of the numbers is assumed, only that nights without a change could have come in any other order.
Sources: Good, "Permutation, Parametric and Bootstrap Tests of Hypotheses"; Truong, Oudre, Vayatis, "Selective review of
offline change point detection methods".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.tools.extras import install_command

Floats = npt.NDArray[np.float64]

#: The highest p of a change. It is small, as each series is searched again every night: `benchmarks/change_points.py`.
LEVEL = 0.001
#: Fewer nights have too few orders to reach LEVEL: 7 of 14 can be chosen in 3,432 ways.
NIGHTS_MIN = 14
#: The fewest nights that make a level.
SIDE_NIGHTS_MIN = 3
#: The largest distance from the median with which a value counts, in units of the usual distance.
BOUND = 3.0
#: A normal distribution's standard deviation, in medians of its absolute distances.
_DEVIATIONS_A_MEDIAN = 1.4826
_SHUFFLES = 9999
_SHUFFLES_AT_ONCE = 1111
#: Sums of the same numbers in different orders differ by less than this part.
_ROUNDING = 1e-9
_SEED = 20_001


class NoLibraryError(Exception):
    """The optional library that finds change points is not installed. The text says how to install it."""

    def __init__(self) -> None:
        super().__init__(f"Change points need the library ruptures: {install_command('trend')}")


@dataclass(frozen=True)
class ChangePoint:
    """A change of the level, at the index ``first`` of the series.

    ``before``, ``after``: the medians of the nights before ``first``, and from it on; their means if the medians are
    equal (``by_means``). Both may be infinite. ``p``: the part of all shuffles
    that have a cut as good."""

    first: int
    before: float
    after: float
    p: float
    by_means: bool = False

    @property
    def ratio(self) -> float | None:
        """Return ``after`` as a part of ``before``; None if that is 0."""
        return self.after / self.before if self.before else None


def change_points(values: Sequence[float] | Floats) -> list[ChangePoint]:
    """Return the changes of ``values``, which are in the order of nights. The result is deterministic.

    An infinite value counts as longer than every other. Raise NoLibraryError without the library."""
    series = np.asarray(values, dtype=np.float64)
    found = sorted(_changes(series, 0, len(series), np.random.default_rng(_SEED)))
    edges = [0, *(first for first, _ in found), len(series)]
    parts = [series[a:b] for a, b in itertools.pairwise(edges)]
    return [_change_point(first, p, *two) for (first, p), two in zip(found, itertools.pairwise(parts), strict=True)]


def _change_point(first: int, p: float, before: Floats, after: Floats) -> ChangePoint:
    old, new = float(np.median(before)), float(np.median(after))
    if old != new:
        return ChangePoint(first, old, new, p)
    return ChangePoint(first, float(np.mean(before)), float(np.mean(after)), p, by_means=True)


def noise(values: Sequence[float] | Floats, changes: Sequence[ChangePoint]) -> float | None:
    """Return how far nights usually lie from their level, as a part of it.

    None if there are too few nights, or all levels are 0 or infinite."""
    series = np.asarray(values, dtype=np.float64)
    edges = [0, *(change.first for change in changes), len(series)]
    parts = [series[a:b] for a, b in itertools.pairwise(edges) if b - a >= SIDE_NIGHTS_MIN]
    apart = [np.abs(part / level - 1) for part in parts if np.isfinite(level := float(np.median(part))) and level]
    found = float(np.median(np.concatenate(apart)) * _DEVIATIONS_A_MEDIAN) if apart else math.inf
    return found if math.isfinite(found) else None


def _changes(series: Floats, start: int, end: int, random: np.random.Generator) -> Iterator[tuple[int, float]]:
    """Yield (first index, p) of each change."""
    if end - start < NIGHTS_MIN:
        return
    bounded = bounded_distances(series[start:end])
    if bounded is None:
        return
    first = _best_cut(bounded)
    p = _p(bounded, first, random)
    if p <= LEVEL:
        yield start + first, p
        yield from _changes(series, start, start + first, random)
        yield from _changes(series, start + first, end, random)


def bounded_distances(values: Floats) -> Floats | None:
    """Return the bounded distances from the median, in units of their own median; None if all values are equal.

    If more than half of the distances are 0, or about half are infinite, the unit is the mean of the finite ones."""
    middle = np.median(values)
    with np.errstate(invalid="ignore"):  # infinite less infinite, which is chosen away
        apart = np.where(values == middle, 0.0, values - middle)
    finite = np.abs(apart[np.isfinite(apart)])
    usual = float(np.median(np.abs(apart))) * _DEVIATIONS_A_MEDIAN
    usual = usual if usual and math.isfinite(usual) else float(np.mean(finite)) or 1.0
    with np.errstate(over="ignore"):  # values that overflow are bounded too
        return np.clip(apart / usual, -BOUND, BOUND) if apart.any() else None


def _best_cut(values: Floats) -> int:
    try:
        import ruptures  # noqa: PLC0415 - optional
    except ModuleNotFoundError:
        raise NoLibraryError from None
    search = ruptures.Binseg(model="l2", min_size=SIDE_NIGHTS_MIN, jump=1).fit(values)
    return int(search.predict(n_bkps=1)[0])


def _p(values: Floats, first: int, random: np.random.Generator) -> float:
    """Return the part of the shuffles, with the given order itself, whose best cut gains as much as that at ``first``.

    Stop drawing shuffles when it certainly exceeds LEVEL."""
    reached = _gains(values[None])[0, first - SIDE_NIGHTS_MIN] * (1 - _ROUNDING)
    drawn = as_good = 0
    while drawn < _SHUFFLES and as_good < LEVEL * (_SHUFFLES + 1):
        shuffled = random.permuted(np.tile(values, (_SHUFFLES_AT_ONCE, 1)), axis=1)
        as_good += int((_gains(shuffled).max(axis=1) >= reached).sum())
        drawn += _SHUFFLES_AT_ONCE
    return (1 + as_good) / (1 + drawn)


def _gains(rows: Floats) -> Floats:
    """Return by how much each allowed cut (columns) of each row reduces the squared distances from the means."""
    nights = rows.shape[1]
    cuts = np.arange(SIDE_NIGHTS_MIN, nights - SIDE_NIGHTS_MIN + 1)
    left = np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1)[:, cuts - 1]
    return np.asarray(left**2 * nights / (cuts * (nights - cuts)))
