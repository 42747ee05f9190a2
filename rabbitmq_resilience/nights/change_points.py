"""Where a series of numbers, one a night, changed its level.

A stretch of nights is cut in two where that leaves the least squared distance from the means of the two parts; the
library ruptures finds that place. It is believed only if chance would hardly do as well: among shuffles of the same
values, at most one in a thousand leaves as little. Both parts are searched in the same way. Before, each value is taken
as its distance from the median, in units of the usual distance, and is bounded: one bad night moves no mean.

Nothing is assumed of how the numbers are spread, only that nights without a change could as well have come in any other
order. Source: Good, "Permutation, Parametric and Bootstrap Tests of Hypotheses"; Truong, Oudre, Vayatis, "Selective
review of offline change point detection methods".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.tools.extras import install_command

Floats = npt.NDArray[np.float64]

#: What chance may do. It is so small as a series is looked at again each night: `benchmarks/change_points.py`.
LEVEL = 0.001
#: Of fewer nights there are too few orders for any to be as rare as that: 7 of 14 can be chosen in 3,432 ways.
NIGHTS_MIN = 14
#: Fewer nights than these on one side are no level yet.
SIDE_NIGHTS_MIN = 3
#: How far a value counts at most, in usual distances from the median.
BOUND = 3.0
#: A normal distribution's standard deviation, in medians of its absolute distances.
_DEVIATIONS_A_MEDIAN = 1.4826
_SHUFFLES = 9999
_SHUFFLES_AT_ONCE = 1111
#: Sums of the same numbers in another order differ by less.
_ROUNDING = 1e-9
_SEED = 20_001


class NoLibraryError(Exception):
    """The optional part of the package that finds change points is not installed; the text says how to have it."""

    def __init__(self) -> None:
        super().__init__(f"Change points need the library ruptures: {install_command('trend')}")


@dataclass(frozen=True)
class ChangePoint:
    """The level was ``before`` (a median) until the night before ``first``, an index of the series, and is ``after``
    from it on. ``p`` is the part of all shuffles that would show as much."""

    first: int
    before: float
    after: float
    p: float

    @property
    def ratio(self) -> float | None:
        """``after`` as a part of ``before``; None where that was 0."""
        return self.after / self.before if self.before else None


def change_points(values: Sequence[float] | Floats) -> list[ChangePoint]:
    """Where ``values``, in the order of nights, changed. The same values give the same answer. Raises
    NoLibraryError."""
    series = np.asarray(values, dtype=np.float64)
    found = sorted(_changes(series, 0, len(series), np.random.default_rng(_SEED)))
    edges = [0, *(first for first, _ in found), len(series)]
    levels = [float(np.median(series[a:b])) for a, b in itertools.pairwise(edges)] if found else []
    return [ChangePoint(first, levels[i], levels[i + 1], p) for i, (first, p) in enumerate(found)]


def noise(values: Sequence[float] | Floats, changes: Sequence[ChangePoint]) -> float | None:
    """How far nights usually lie from their level, as a part of it; None where that cannot be told."""
    series = np.asarray(values, dtype=np.float64)
    edges = [0, *(change.first for change in changes), len(series)]
    parts = [series[a:b] for a, b in itertools.pairwise(edges) if b - a >= SIDE_NIGHTS_MIN]
    apart = [np.abs(part / level - 1) for part in parts if (level := float(np.median(part)))]
    return float(np.median(np.concatenate(apart)) * _DEVIATIONS_A_MEDIAN) if apart else None


def _changes(series: Floats, start: int, end: int, random: np.random.Generator) -> Iterator[tuple[int, float]]:
    """Each change's first index, and its p."""
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
    """Distances from the median, in units of their own median, or of their mean where more than half are 0; bounded.
    None where all values are the same."""
    apart = values - np.median(values)
    usual = float(np.median(np.abs(apart))) * _DEVIATIONS_A_MEDIAN or float(np.mean(np.abs(apart)))
    with np.errstate(over="ignore"):  # what is far beyond the bound is bounded too
        return np.clip(apart / usual, -BOUND, BOUND) if usual else None


def _best_cut(values: Floats) -> int:
    try:
        import ruptures  # noqa: PLC0415 - optional
    except ModuleNotFoundError:
        raise NoLibraryError from None
    search = ruptures.Binseg(model="l2", min_size=SIDE_NIGHTS_MIN, jump=1).fit(values)
    return int(search.predict(n_bkps=1)[0])


def _p(values: Floats, first: int, random: np.random.Generator) -> float:
    """The part of the shuffles whose best cut gains as much as that at ``first``, itself among them; once they are too
    many, no more are drawn."""
    reached = _gains(values[None])[0, first - SIDE_NIGHTS_MIN] * (1 - _ROUNDING)
    drawn = as_good = 0
    while drawn < _SHUFFLES and as_good < LEVEL * (_SHUFFLES + 1):
        shuffled = random.permuted(np.tile(values, (_SHUFFLES_AT_ONCE, 1)), axis=1)
        as_good += int((_gains(shuffled).max(axis=1) >= reached).sum())
        drawn += _SHUFFLES_AT_ONCE
    return (1 + as_good) / (1 + drawn)


def _gains(rows: Floats) -> Floats:
    """By how much each allowed cut (columns) of each row lessens the squared distances from the means."""
    nights = rows.shape[1]
    cuts = np.arange(SIDE_NIGHTS_MIN, nights - SIDE_NIGHTS_MIN + 1)
    left = np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1)[:, cuts - 1]
    return np.asarray(left**2 * nights / (cuts * (nights - cuts)))
