"""Rank clusters by what 1,000 messages/s cost a month, in each condition, and say which clusters drop out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.extensions.sweeps.cells import choices
from rabbitmq_resilience.extensions.sweeps.measures import MEASURES
from rabbitmq_resilience.extensions.sweeps.paired import ByRound, by_round, in_both
from rabbitmq_resilience.extensions.sweeps.prices import Leaderboard
from rabbitmq_resilience.extensions.sweeps.results import ResultRow, Results
from rabbitmq_resilience.extensions.sweeps.statistics import (
    ALPHA,
    ConfidenceInterval,
    Word,
    compared,
    median_interval,
    runs_needed,
)
from rabbitmq_resilience.extensions.sweeps.sweep_model import SweepSpec
from rabbitmq_resilience.extensions.sweeps.sweep_summary import number
from rabbitmq_resilience.extensions.sweeps.wheres import where


@dataclass(frozen=True)
class RankedCandidate:
    """One candidate in one condition.

    ``rank``: from 1; None if the candidate drops out, and ``out`` says why. ``cost``: of 1,000 messages/s a month.
    ``word``: its cost compared with that of the candidate before it: *worse* if it is dearer beyond doubt; None for
    the first."""

    rank: int | None
    cost: ConfidenceInterval | None
    rate: ConfidenceInterval | None
    out: str
    word: Word | None

    @property
    def mark(self) -> str:
        """Return the mark of a doubtful order: *=* if the runs show no difference, *?* if there are too few runs."""
        return {None: "", "worse": "", "too few runs": "?"}.get(self.word, "=")


@dataclass(frozen=True)
class Candidate:
    """A cluster. ``per_month``: the cost of its whole machines. ``places``: in the order of the conditions."""

    name: str
    made_of: str
    per_month: float
    places: Sequence[RankedCandidate]


@dataclass(frozen=True)
class Ranking:
    """All candidates in all conditions.

    ``conditions``: in the order of the file. ``candidates``: in the order of the first condition; those that drop out
    in it come last. ``alpha``: the level of one comparison of neighbours; all comparisons are one family."""

    currency: str
    source: str | None
    scale: float
    conditions: Sequence[str]
    candidates: Sequence[Candidate]
    alpha: float

    @property
    def runs_needed(self) -> int | None:
        """Return the fewest runs of each cell that can show an order; None if no place has too few."""
        few = any(place.mark == "?" for one in self.candidates for place in one.places)
        return runs_needed(self.alpha) if few else None


@dataclass(frozen=True)
class _Seen:
    """The numbers of one candidate in one condition. ``costs``: {round: cost}. ``out``: why it drops out, or empty."""

    costs: ByRound
    rates: Sequence[float]
    out: str


def ranking(results: Results, spec: SweepSpec) -> Ranking | None:
    """Rank the candidates by the runs played until now. Return None for a sweep without a leaderboard."""
    board = spec.leaderboard
    if board is None:
        return None
    seen: dict[str, dict[str, list[ResultRow]]] = {}
    for line in results.final:
        mine = seen.setdefault(where(line.labels, without=board.axis), {})
        mine.setdefault(line.labels[board.axis], []).append(line)
    in_file = dict.fromkeys(where(choice.labels, without=board.axis) for choice in choices(spec))
    conditions = {name: seen[name] for name in in_file if name in seen}
    prices = board.known_prices()
    names = [name for name in board.clusters if any(name in of for of in conditions.values())]
    alpha = ALPHA / max(1, len(conditions) * (len(names) - 1))
    places = [_places(board, names, of, alpha) for of in conditions.values()]
    candidates = [
        Candidate(
            name,
            f"{board.clusters[name].count} x {board.clusters[name].node}",
            _per_month(board, name),
            [of[name] for of in places],
        )
        for name in names
    ]
    candidates.sort(key=lambda candidate: [place.rank or math.inf for place in candidate.places])
    return Ranking(prices.currency, prices.source, board.scale, list(conditions), candidates, alpha)


def _per_month(board: Leaderboard, name: str) -> float:
    nodes = board.clusters[name]
    return nodes.count * board.known_prices().nodes[nodes.node].per_month


def _places(
    board: Leaderboard, names: Sequence[str], lines: Mapping[str, Sequence[ResultRow]], alpha: float
) -> dict[str, RankedCandidate]:
    seen = {name: _seen(board, name, lines.get(name, [])) for name in names}
    costs = {name: median_interval([*one.costs.values()]) for name, one in seen.items() if one.costs}
    inside = sorted((name for name in costs if not seen[name].out), key=lambda name: costs[name].middle)
    word_of = {
        after: _compared(in_both(seen[before].costs, seen[after].costs), alpha)
        for before, after in itertools.pairwise(inside)
    }
    return {
        name: RankedCandidate(
            inside.index(name) + 1 if name in inside else None,
            costs.get(name),
            median_interval(one.rates) if one.rates else None,
            one.out,
            word_of.get(name),
        )
        for name, one in seen.items()
    }


def _compared(costs: tuple[Sequence[float], Sequence[float]], alpha: float) -> Word:
    before, after = costs
    return compared(before, after, scale="ratio", better="lower", alpha=alpha)[0]


def _seen(board: Leaderboard, name: str, lines: Sequence[ResultRow]) -> _Seen:
    rates = {number: rate for number, rate in by_round(lines, board.rate).items() if math.isfinite(rate)}
    paid = _per_month(board, name) * board.scale * 1000
    costs = {number: paid / rate if rate > 0 else math.inf for number, rate in rates.items()}
    return _Seen(costs, [*rates.values()], _out(board, lines, [*rates.values()]))


def _out(board: Leaderboard, lines: Sequence[ResultRow], rates: Sequence[float]) -> str:
    """Return why the candidate drops out; empty if it does not."""
    if not lines:
        return "not played"
    broke = [line for line in lines if line.verdict == "INVALID"]
    if broke:
        return f"broke a promise in {len(broke)} of {len(lines)} runs: {broke[0].why}"
    if 2 * len(rates) <= len(lines):
        without = next(line for line in lines if line.values.get(board.rate) in (None, math.inf))
        return f"no number in {len(lines) - len(rates)} of {len(lines)} runs: {without.why or without.status}"
    if 2 * (nothing := rates.count(0)) >= len(rates):
        return f"{MEASURES[board.rate].what}: none in {nothing} of {len(rates)} runs"
    missed = [text for measure, bound in board.demands.items() if (text := _missed(measure, bound, lines))]
    return "; ".join(missed)


def _missed(measure: str, bound: float, lines: Sequence[ResultRow]) -> str:
    of = MEASURES[measure]
    values = [value for line in lines if (value := line.values.get(measure)) is not None]
    if 2 * len(values) <= len(lines):
        return f"{of.what}: no number in {len(lines) - len(values)} of {len(lines)} runs"
    middle = median_interval(values).middle
    short = middle > bound if of.better == "lower" else middle < bound
    return f"{of.what} {number(middle)} {of.unit} ({bound:g} demanded)" if short else ""
