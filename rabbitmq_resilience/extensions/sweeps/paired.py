"""Pair the numbers of two cells: only rounds in which both have a number are compared.

A round plays each cell once, so that changes from round to round affect all cells alike. Without pairing, a machine
that becomes slower, and does not hold one cell in the last rounds, would spoil only the numbers of the other cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rabbitmq_resilience.extensions.sweeps.results import ResultRow

ByRound = Mapping[int, float]


def by_round(lines: Sequence[ResultRow], measure: str) -> ByRound:
    """Return {round: number} of one cell, infinity for what never came; without rounds that have no number."""
    values = ((line.round, line.values.get(measure)) for line in lines if line.status == "measured")
    return {number: value for number, value in values if value is not None}


def in_both(first: ByRound, second: ByRound) -> tuple[list[float], list[float]]:
    """Return the numbers of both cells in the rounds in which both have one."""
    rounds = [number for number in first if number in second]
    return [first[number] for number in rounds], [second[number] for number in rounds]
