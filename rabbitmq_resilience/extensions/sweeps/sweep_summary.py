"""Summarise the cells of a sweep: medians with intervals, and which cells differ from the first one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rabbitmq_resilience.extensions.sweeps.cells import Cell
from rabbitmq_resilience.extensions.sweeps.measures import MEASURES
from rabbitmq_resilience.extensions.sweeps.paired import ByRound, by_round, in_both
from rabbitmq_resilience.extensions.sweeps.results import NEVER, ResultRow, Results
from rabbitmq_resilience.extensions.sweeps.statistics import ConfidenceInterval, Word, compared, median_interval
from rabbitmq_resilience.extensions.sweeps.sweep_file import Sweep
from rabbitmq_resilience.report.wording import NOTHING

PAGE = "index.html"
TEMPLATES = Path(__file__).resolve().parent / "templates"


@dataclass(frozen=True)
class MeasureText:
    """One measure of one cell.

    ``word``: the cell compared with the first one; None for the first cell, and for a rate if the two loads state
    different rates. ``common``: in how many rounds both have a number, if one of them has more."""

    values: Sequence[float]
    interval: ConfidenceInterval | None
    word: Word | None
    common: int | None = None

    @property
    def text(self) -> str:
        if self.interval is None:
            return NOTHING
        return around(self.interval)

    @property
    def said(self) -> str:
        """Return the word for a difference, and the rounds that it is based on; empty without a difference."""
        if self.word not in ("better", "worse"):
            return ""
        return self.word if self.common is None else f"{self.word} in the {self.common} rounds of both"

    def __str__(self) -> str:
        return f"{self.text} {self.said}".rstrip()


@dataclass(frozen=True)
class CellRow:
    """One cell. ``ended``: how its runs ended, such as ``4 VALID`` or ``3 VALID, 1 not held``.

    ``by_measure``: {measure: its numbers}."""

    labels: Mapping[str, str]
    lines: Sequence[ResultRow]
    ended: str
    why: str
    by_measure: Mapping[str, MeasureText]


def rows(results: Results, sweep: Sweep) -> list[CellRow]:
    """Return the rows of all cells that have a run, in the order of the file."""
    played = [
        (cell, mine)
        for cell in sweep.cells
        if (mine := [line for line in results.final if dict(line.labels) == dict(cell.labels)])
    ]
    first: dict[str, ByRound] = {}
    found = []
    for cell, mine in played:
        is_same_rate = _stated_rate(cell) == _stated_rate(played[0][0])
        by_measure = {}
        for name in sweep.spec.measures:
            numbers = by_round(mine, name)
            is_compared = name in first and (is_same_rate or not MEASURES[name].paced)
            both = in_both(first[name], numbers) if is_compared else None
            word = _word(*both, name) if both else None
            common = len(both[0]) if both and len(both[0]) < max(len(first[name]), len(numbers)) else None
            first.setdefault(name, numbers)
            values = list(numbers.values())
            by_measure[name] = MeasureText(values, median_interval(values) if values else None, word, common)
        found.append(CellRow(cell.labels, mine, _ended(mine), _why(mine), by_measure))
    return found


def _stated_rate(cell: Cell) -> tuple[object, ...]:
    load = cell.scenario.generated
    return load.rate_per_s, load.variable_rate


def _word(first: Sequence[float], values: Sequence[float], name: str) -> Word:
    measure = MEASURES[name]
    return compared(first, values, scale=measure.scale, better=measure.better)[0]


def _ended(mine: Sequence[ResultRow]) -> str:
    words = Counter(line.verdict if line.status == "measured" else line.status for line in mine)
    return ", ".join(f"{count} {word}" for word, count in words.items())


def _why(mine: Sequence[ResultRow]) -> str:
    """Return the first reason why a run gave no number, or broke a promise."""
    return next((line.why for line in mine if line.why), "")


def around(interval: ConfidenceInterval) -> str:
    """Return the middle of an interval, and its ends in brackets."""
    low, middle, high = (number(value) for value in (interval.low, interval.middle, interval.high))
    return middle if low == high else f"{middle} ({low} to {high})"


def number(value: float) -> str:
    """Return a number as text with three digits and without exponents; ``never`` for infinity."""
    if math.isinf(value):
        return NEVER
    text = f"{value:.3g}"
    return f"{value:,.0f}" if abs(float(text)) >= 1000 else text


#: The functions with which templates show numbers.
WORDS: Mapping[str, Any] = {"around": around, "number": number, "inf": math.inf}
