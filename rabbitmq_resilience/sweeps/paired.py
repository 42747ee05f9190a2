"""Numbers of two cells that may be compared: those of the rounds in which both have one.

A round plays each cell once, so that what changes from round to round meets all of them alike. Where a machine gets
slower, and did not hold one cell in the last rounds, the other one would be compared by its worse half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rabbitmq_resilience.sweeps.results import Line

ByRound = Mapping[int, float]


def by_round(lines: Sequence[Line], measure: str) -> ByRound:
    """{round: number} of one cell, infinity for what never came; without the rounds that gave none."""
    told = ((line.round, line.values.get(measure)) for line in lines if line.status == "measured")
    return {number: value for number, value in told if value is not None}


def in_both(first: ByRound, second: ByRound) -> tuple[list[float], list[float]]:
    rounds = [number for number in first if number in second]
    return [first[number] for number in rounds], [second[number] for number in rounds]
