"""Two sides, measured alike: by how much they differ, as few words as the numbers allow.

All comparisons of one table are one family: each is made at a level that leaves the chance of any false "better" or
"worse" among all of them at ALPHA (C. E. Bonferroni, 1936).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from rabbitmq_resilience.nights.rates import Run, chance
from rabbitmq_resilience.sweeps.measures import MEASURES, Measure
from rabbitmq_resilience.sweeps.statistics import (
    ALPHA,
    Interval,
    Scale,
    Word,
    can_tell,
    can_tell_together,
    compared,
    larger_by,
    median_interval,
    middle_shift,
    rates_chance,
    runs_needed,
    scale_of,
    word_of,
)
from rabbitmq_resilience.tables.rate import Rate


@dataclass(frozen=True)
class Runs:
    """What one side has of one cell or scenario. ``values``: {measure: numbers}, infinity for what never came.
    ``broke``: how many broke a promise, of those that came to a verdict; None where none did. ``left_out``: how many
    runs gave no numbers."""

    values: Mapping[str, Sequence[float]]
    broke: Rate | None
    left_out: int = 0


@dataclass(frozen=True)
class Side:
    """``runs``: {cell or scenario: its runs}."""

    name: str
    runs: Mapping[str, Runs]


@dataclass(frozen=True)
class Difference:
    """One measure of one cell, or, with ``where`` empty, of all of them together: the medians of the two sides, and by
    how much the second is larger. ``apart``: None where so few runs cannot tell."""

    where: str
    measure: str
    first: Interval
    second: Interval
    apart: Interval | None
    scale: Scale
    word: Word

    @property
    def of(self) -> Measure:
        return MEASURES[self.measure]


@dataclass(frozen=True)
class Rates:
    """How often the two sides broke a promise in one cell, or, with ``where`` empty, in all of them together.
    ``chance``: how likely that is where both do it as often."""

    where: str
    first: Rate
    second: Rate
    chance: float
    word: Word


@dataclass(frozen=True)
class Comparison:
    """``only``: {side: what only that side has}. ``left_out``: {cell: runs that gave no numbers, of each side}."""

    names: tuple[str, str]
    wheres: Sequence[str]
    differences: Sequence[Difference]
    rates: Sequence[Rates]
    alpha: float
    only: Mapping[str, Sequence[str]]
    left_out: Mapping[str, tuple[int, int]]

    @property
    def runs_needed(self) -> int:
        """The fewest runs of each side by which one of these comparisons can tell anything."""
        return runs_needed(self.alpha)

    @property
    def told(self) -> Mapping[Literal["better", "worse", "could"], int]:
        """How many words say so, and how many ``could`` have."""
        words = [*(one.word for one in self.differences), *(one.word for one in self.rates)]
        could = len(words) - words.count("too few runs")
        return {"better": words.count("better"), "worse": words.count("worse"), "could": could}

    @property
    def together(self) -> Sequence[Difference]:
        """What all cells say together, a line each measure."""
        return [one for one in self.differences if not one.where]

    @property
    def striking(self) -> Sequence[Difference | Rates]:
        """Those of single cells that say a word."""
        every: list[Difference | Rates] = [*self.rates, *self.differences]
        return [one for one in every if one.where and one.word in ("better", "worse")]


@dataclass(frozen=True)
class _Pair:
    """Two sides, in the cells that both have."""

    first: Side
    second: Side

    @cached_property
    def wheres(self) -> list[str]:
        return [where for where in self.first.runs if where in self.second.runs]

    def measured(self) -> Iterator[tuple[str, str, Sequence[float], Sequence[float]]]:
        """What both sides have numbers of."""
        for where in self.wheres:
            a, b = self.first.runs[where].values, self.second.runs[where].values
            for measure in MEASURES:
                if a.get(measure) and b.get(measure):
                    yield where, measure, a[measure], b[measure]

    def rates(self) -> Iterator[tuple[str, Rate, Rate]]:
        for where in self.wheres:
            a, b = self.first.runs[where].broke, self.second.runs[where].broke
            if a is not None and b is not None:
                yield where, a, b


def compare(first: Side, second: Side, *, among: int = 1) -> Comparison:
    """``second`` beside ``first``; ``among`` so many such tables that are one family together."""
    pair = _Pair(first, second)
    measured, rates = list(pair.measured()), list(pair.rates())
    together = _together(measured)
    # Whether a comparison can tell anything is known from the numbers of runs alone, so that this choice is no bias.
    family = sum(can_tell(len(a), len(b)) for _, _, a, b in measured)
    family += sum(_least_chance(a, b) <= ALPHA for _, a, b in rates)
    family += len(rates) > 1
    family += sum(can_tell_together(len(middles)) for _, middles in together.values())
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
        {
            where: numbers
            for where in pair.wheres
            if any(numbers := (first.runs[where].left_out, second.runs[where].left_out))
        },
    )


def words_of(cells: int, measures: int) -> int:
    """How many words a comparison of so many cells has: one a measure, one of broken promises, and for all cells
    together one of these, and one of each measure if the cells are enough to tell anything."""
    return cells * (measures + 1) + (cells > 1) + measures * can_tell_together(cells)


def _difference(where: str, measure: str, a: Sequence[float], b: Sequence[float], alpha: float) -> Difference:
    of = MEASURES[measure]
    word, apart = compared(a, b, scale=of.scale, better=of.better, alpha=alpha)
    scale = scale_of(of.scale, a, b)
    return Difference(where, measure, median_interval(a), median_interval(b), apart, scale, word)


def _rates(where: str, a: Rate, b: Rate, alpha: float) -> Rates:
    chance = rates_chance((a.hits, a.runs), (b.hits, b.runs))
    more = b.hits * a.runs > a.hits * b.runs
    word: Word = "no difference seen" if chance > alpha else "worse" if more else "better"
    return Rates(where, a, b, chance, "too few runs" if _least_chance(a, b) > alpha else word)


def _rates_together(rates: Sequence[tuple[str, Rate, Rate]], alpha: float) -> Iterator[Rates]:
    """Each cell is compared with itself only, so that it does not matter which of them both sides played more often."""
    if len(rates) < 2:
        return
    dealt = [
        [Run("", where, hit=number < of[side].hits) for where, *of in rates for number in range(of[side].runs)]
        for side in (0, 1)
    ]
    chance_of = chance(*dealt)
    first, second = (Rate(sum(of[side].hits for _, *of in rates), len(dealt[side])) for side in (0, 1))
    expected = sum((a.hits + b.hits) * b.runs / (a.runs + b.runs) for _, a, b in rates)
    word: Word = "no difference seen" if chance_of > alpha else "worse" if second.hits > expected else "better"
    yield Rates("", first, second, chance_of, word)


def _least_chance(a: Rate, b: Rate) -> float:
    """Where one side always breaks a promise, and the other never."""
    return rates_chance((0, a.runs), (b.runs, b.runs))


#: Of each measure how it is compared, and the medians of both sides in each cell.
_Together = Mapping[str, tuple[Scale, Sequence[tuple[float, float]]]]


def _together(measured: Sequence[tuple[str, str, Sequence[float], Sequence[float]]]) -> _Together:
    """What many cells or scenarios say together, each with its median, however few runs it has."""
    found: dict[str, tuple[Scale, Sequence[tuple[float, float]]]] = {}
    for measure in MEASURES:
        middles = [_middles(a, b) for _, name, a, b in measured if name == measure]
        if len(middles) > 1:
            found[measure] = scale_of(MEASURES[measure].scale, *middles), middles
    return found


def _middles(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """The medians of both sides in one cell, of as many runs of either: where noise is skewed, the median of two runs
    is usually another one than that of one run."""
    runs = min(len(a), len(b))
    return median_interval(a[:runs]).middle, median_interval(b[:runs]).middle


def _overall(measure: str, scale: Scale, middles: Sequence[tuple[float, float]], alpha: float) -> Difference:
    """By how much the second side is larger in the cell in the middle."""
    apart = [larger_by(a, b, scale) for a, b in middles]
    firsts, seconds = zip(*middles, strict=True)
    told = replace(median_interval(apart, alpha=alpha), middle=middle_shift(sorted(apart)))
    enough = can_tell_together(len(apart), alpha)
    word = word_of(told, scale, MEASURES[measure].better) if enough else "too few runs"
    return Difference(
        "", measure, median_interval(firsts), median_interval(seconds), told if enough else None, scale, word
    )
