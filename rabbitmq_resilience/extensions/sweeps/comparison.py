"""Compare two sides that were measured alike: by how much they differ, and whether the numbers suffice to say so.

All comparisons of one table are one family. Each is made at such a level that the chance of any false "better" or
"worse" in the whole family is at most ALPHA (C. E. Bonferroni, 1936).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from rabbitmq_resilience.extensions.nights.rates import NightOutcome, chance
from rabbitmq_resilience.extensions.sweeps.measures import MEASURES, Measure
from rabbitmq_resilience.extensions.sweeps.statistics import (
    ALPHA,
    ConfidenceInterval,
    Scale,
    Word,
    compared,
    enough_cells,
    enough_runs,
    larger_by,
    median_interval,
    middle_shift,
    rates_chance,
    runs_needed,
    scale_of,
    word_of,
)
from rabbitmq_resilience.report.rate import Rate


@dataclass(frozen=True)
class Runs:
    """The runs of one side in one cell or scenario.

    ``values``: {measure: numbers}, infinity for what never came. ``broke``: how many runs broke a promise, of those
    that came to a verdict; None if no run came to one. ``left_out``: how many runs gave no numbers. ``unpaired``: how
    many broke a promise in rounds in which the other side came to no verdict, so that they are not compared."""

    values: Mapping[str, Sequence[float]]
    broke: Rate | None
    left_out: int = 0
    unpaired: int = 0


@dataclass(frozen=True)
class ComparedSide:
    """One of the two sides. ``runs``: {cell or scenario: its runs}."""

    name: str
    runs: Mapping[str, Runs]


@dataclass(frozen=True)
class Difference:
    """One measure of the cell ``where``, or of all cells together if ``where`` is empty.

    ``first``, ``second``: the medians of the two sides. ``apart``: by how much the second is larger, a ratio if
    ``scale`` is "ratio"; None if there are too few runs."""

    where: str
    measure: str
    first: ConfidenceInterval
    second: ConfidenceInterval
    apart: ConfidenceInterval | None
    scale: Scale
    word: Word

    @property
    def of(self) -> Measure:
        return MEASURES[self.measure]


@dataclass(frozen=True)
class BreachRates:
    """How often the two sides broke a promise in the cell ``where``, or in all cells together if ``where`` is empty.

    ``chance``: the probability of such a difference, or a larger one, if both have the same true rate."""

    where: str
    first: Rate
    second: Rate
    chance: float
    word: Word


@dataclass(frozen=True)
class Comparison:
    """The comparison of two sides. ``wheres``: the cells or scenarios of both.

    ``only``: {side: cells that only that side has}. ``left_out``: {cell: number of runs without numbers, of each
    side}. ``unpaired``: the same for runs that broke a promise and are not compared."""

    names: tuple[str, str]
    wheres: Sequence[str]
    differences: Sequence[Difference]
    rates: Sequence[BreachRates]
    alpha: float
    only: Mapping[str, Sequence[str]]
    left_out: Mapping[str, tuple[int, int]]
    unpaired: Mapping[str, tuple[int, int]]

    @property
    def runs_needed(self) -> int:
        """Return how many runs of each side are needed for any of these comparisons to show a difference."""
        return runs_needed(self.alpha)

    @property
    def counts(self) -> Mapping[Literal["better", "worse", "enough"], int]:
        """Return how many comparisons say better and worse, and how many have ``enough`` runs to say so."""
        words = [*(one.word for one in self.differences), *(one.word for one in self.rates)]
        enough = len(words) - words.count("too few runs")
        return {"better": words.count("better"), "worse": words.count("worse"), "enough": enough}

    @property
    def together(self) -> Sequence[Difference]:
        """Return the differences of all cells together, one for each measure."""
        return [one for one in self.differences if not one.where]

    @property
    def striking(self) -> Sequence[Difference | BreachRates]:
        """Return the comparisons of single cells that say better or worse."""
        every: list[Difference | BreachRates] = [*self.rates, *self.differences]
        return [one for one in every if one.where and one.word in ("better", "worse")]


@dataclass(frozen=True)
class _Pair:
    """Two sides, in the cells that both have."""

    first: ComparedSide
    second: ComparedSide

    @cached_property
    def wheres(self) -> list[str]:
        """Return the cells that both sides have."""
        return [where for where in self.first.runs if where in self.second.runs]

    def measured(self) -> Iterator[tuple[str, str, Sequence[float], Sequence[float]]]:
        """Yield (cell, measure, numbers of the first side, numbers of the second) if both have numbers."""
        for where in self.wheres:
            a, b = self.first.runs[where].values, self.second.runs[where].values
            for measure in MEASURES:
                if a.get(measure) and b.get(measure):
                    yield where, measure, a[measure], b[measure]

    def rates(self) -> Iterator[tuple[str, Rate, Rate]]:
        """Yield (cell, rate of the first side, rate of the second) if both have verdicts."""
        for where in self.wheres:
            a, b = self.first.runs[where].broke, self.second.runs[where].broke
            if a is not None and b is not None:
                yield where, a, b


def compare(first: ComparedSide, second: ComparedSide, *, among: int = 1) -> Comparison:
    """Compare ``second`` with ``first``. ``among``: how many such tables form one family together."""
    pair = _Pair(first, second)
    measured, rates = list(pair.measured()), list(pair.rates())
    together = _cell_medians(measured)
    # The choice of comparisons is no bias: the numbers of runs alone decide which of them can show a difference.
    family = sum(enough_runs(len(a), len(b)) for _, _, a, b in measured)
    family += sum(_least_chance(a, b) <= ALPHA for _, a, b in rates)
    family += len(rates) > 1
    family += sum(enough_cells(len(middles)) for _, middles in together.values())
    alpha = ALPHA / max(1, family) / among
    return Comparison(
        (first.name, second.name),
        pair.wheres,
        [
            *(_difference(where, measure, a, b, alpha) for where, measure, a, b in measured),
            *(_overall(measure, *medians, alpha) for measure, medians in together.items()),
        ],
        [*_rates_together(rates, alpha), *(_rates(where, a, b, alpha) for where, a, b in rates)],
        alpha,
        {
            side.name: [where for where in side.runs if where not in other.runs]
            for side, other in ((first, second), (second, first))
        },
        _numbers(pair, lambda runs: runs.left_out),
        _numbers(pair, lambda runs: runs.unpaired),
    )


def _numbers(pair: _Pair, number: Callable[[Runs], int]) -> Mapping[str, tuple[int, int]]:
    """Return {cell: the number of each side}, for cells in which a side has one."""
    both = {where: (number(pair.first.runs[where]), number(pair.second.runs[where])) for where in pair.wheres}
    return {where: numbers for where, numbers in both.items() if any(numbers)}


def words_of(cells: int, measures: int) -> int:
    """Return how many judgements (better, worse, ...) a comparison of ``cells`` cells has at most.

    Each cell has one for each measure and one for broken promises. All cells together have one for broken
    promises, and one for each measure if there are enough cells."""
    return cells * (measures + 1) + (cells > 1) + measures * enough_cells(cells)


def _difference(where: str, measure: str, a: Sequence[float], b: Sequence[float], alpha: float) -> Difference:
    of = MEASURES[measure]
    word, apart = compared(a, b, scale=of.scale, better=of.better, alpha=alpha)
    scale = scale_of(of.scale, a, b)
    return Difference(where, measure, median_interval(a), median_interval(b), apart, scale, word)


def _rates(where: str, a: Rate, b: Rate, alpha: float) -> BreachRates:
    chance = rates_chance((a.hits, a.runs), (b.hits, b.runs))
    more = b.hits * a.runs > a.hits * b.runs
    word: Word = "no difference seen" if chance > alpha else "worse" if more else "better"
    return BreachRates(where, a, b, chance, "too few runs" if _least_chance(a, b) > alpha else word)


def _rates_together(rates: Sequence[tuple[str, Rate, Rate]], alpha: float) -> Iterator[BreachRates]:
    """Yield the comparison of all cells together, if there are several.

    Each cell is compared with itself only. So it does not matter that the sides played some cells more often."""
    if len(rates) < 2:
        return
    dealt = [
        [NightOutcome("", where, hit=number < of[side].hits) for where, *of in rates for number in range(of[side].runs)]
        for side in (0, 1)
    ]
    chance_of = chance(*dealt)
    first, second = (Rate(sum(of[side].hits for _, *of in rates), len(dealt[side])) for side in (0, 1))
    expected = sum((a.hits + b.hits) * b.runs / (a.runs + b.runs) for _, a, b in rates)
    word: Word = "no difference seen" if chance_of > alpha else "worse" if second.hits > expected else "better"
    apart = [[replace(one, hit=bool(side)) for one in dealt[side]] for side in (0, 1)]
    yield BreachRates("", first, second, chance_of, "too few runs" if chance(*apart) > alpha else word)


def _least_chance(a: Rate, b: Rate) -> float:
    """Return the chance of the most extreme outcome: the one side never breaks a promise, the other always does."""
    return rates_chance((0, a.runs), (b.runs, b.runs))


#: {measure: (how it is compared, the medians of both sides in each cell)}
_Together = Mapping[str, tuple[Scale, Sequence[tuple[float, float]]]]


def _cell_medians(measured: Sequence[tuple[str, str, Sequence[float], Sequence[float]]]) -> _Together:
    """Return each cell's two medians, for each measure that at least two cells have."""
    found: dict[str, tuple[Scale, Sequence[tuple[float, float]]]] = {}
    for measure in MEASURES:
        middles = [_middles(a, b) for _, name, a, b in measured if name == measure]
        if len(middles) > 1:
            found[measure] = scale_of(MEASURES[measure].scale, *middles), middles
    return found


def _middles(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return the medians of both sides in one cell, over the same number of runs.

    If noise is skewed, the medians of one run and of two runs have different expected values."""
    runs = min(len(a), len(b))
    return median_interval(a[:runs]).middle, median_interval(b[:runs]).middle


def _overall(measure: str, scale: Scale, middles: Sequence[tuple[float, float]], alpha: float) -> Difference:
    """Compare the two sides over all cells of a measure, by the median of the cells' differences."""
    apart = [larger_by(a, b, scale) for a, b in middles]
    firsts, seconds = zip(*middles, strict=True)
    shifted = replace(median_interval(apart, alpha=alpha), middle=middle_shift(sorted(apart), scale))
    enough = enough_cells(len(apart), alpha)
    word = word_of(shifted, scale, MEASURES[measure].better) if enough else "too few runs"
    return Difference(
        "", measure, median_interval(firsts), median_interval(seconds), shifted if enough else None, scale, word
    )
