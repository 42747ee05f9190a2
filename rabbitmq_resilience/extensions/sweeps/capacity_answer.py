"""Compute what a load needs from the cells of a sweep, and check the model by which it is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.extensions.sweeps.capacity import OF, Capacity, CapacityRequest, KnownCapacity, number_of
from rabbitmq_resilience.extensions.sweeps.capacity_model import (
    NODES_MAX,
    Model,
    NoStatisticsError,
    TooFewCellsError,
    fit,
)
from rabbitmq_resilience.extensions.sweeps.missing_runs import missing_runs
from rabbitmq_resilience.extensions.sweeps.paired import by_round
from rabbitmq_resilience.extensions.sweeps.results import ResultRow, Results
from rabbitmq_resilience.extensions.sweeps.statistics import ConfidenceInterval, median_interval
from rabbitmq_resilience.extensions.sweeps.sweep_model import SweepSpec
from rabbitmq_resilience.extensions.sweeps.wheres import where


@dataclass(frozen=True)
class PredictedCell:
    """A measured value and the model's prediction of it.

    ``by_model`` is None if too few cells are left for a model; then ``why`` says so. ``outside``: factors that lie
    outside the measured range."""

    what: str
    measured: float
    by_model: ConfidenceInterval | None
    outside: Sequence[str] = ()
    why: str = ""

    @property
    def is_within(self) -> bool:
        """Return whether the measured value lies within the interval of the prediction."""
        return self.by_model is not None and self.by_model.low <= self.measured <= self.by_model.high

    @property
    def times(self) -> float:
        """Return the ratio of the measured value to the predicted one; NaN without a prediction."""
        return self.measured / self.by_model.middle if self.by_model is not None else math.nan


@dataclass(frozen=True)
class EnoughQueues:
    """How many queues are enough, if each carries what one did in every run of ``cell``."""

    count: int
    cell: str


@dataclass(frozen=True)
class CapacityAnswer:
    """What the ``wanted`` load of the sweep ``title`` needs: ``nodes``, ``cores``, and the rate of each core
    (``per_core_s``).

    ``of_nodes``: the name of the factor for the number of nodes. ``outside``: factors that lie outside the measured
    range. ``most_s``: the largest rate of a cell, in messages/s; None if none was measured. ``queues``: how many queues
    are enough, and the cell that shows it. ``missing``: which runs were not played, in a sentence. ``left_out``: cells
    that were predicted from those of other labels. ``from_others``: predictions of what others measured.
    ``unused``: the number of cells that broke a promise or have no number in most of their runs."""

    title: str
    wanted: CapacityRequest
    of_nodes: str
    model: Model
    nodes: ConfidenceInterval
    cores: ConfidenceInterval
    per_core_s: ConfidenceInterval
    outside: Sequence[str]
    most_s: float | None
    queues: EnoughQueues | None
    missing: str
    left_out: Sequence[PredictedCell]
    from_others: Sequence[PredictedCell]
    unused: int

    @property
    def heading(self) -> str:
        """Return the heading: the load, with its rate and factors, and the sweep's title."""
        at = " and ".join(f"{number:,.10g} {axis}" for axis, number in self.wanted.at.items())
        return f"What {self.wanted.per_s:,.10g} messages/s need{f' at {at}' if at else ''}: {self.title}"

    @property
    def is_beyond(self) -> bool:
        """Return whether no cell carried as many messages as are wanted."""
        return self.most_s is not None and self.wanted.per_s > self.most_s

    @property
    def more_than(self) -> int | None:
        """Return NODES_MAX if more nodes than that would be needed; else None.

        None also if no number of nodes would do, as each further node costs more than it brings."""
        grows = self.model.powers[self.of_nodes].middle > -1
        return NODES_MAX if math.isinf(self.nodes.middle) and grows else None

    @property
    def checked(self) -> int:
        """Return how many of ``left_out`` have a prediction and a number to compare it with."""
        return sum(one.by_model is not None and not math.isnan(one.measured) for one in self.left_out)

    @property
    def within(self) -> int:
        """Return how many of ``left_out`` lie within their intervals."""
        return sum(one.is_within for one in self.left_out)


def capacity(
    results: Results, spec: SweepSpec, *, wanted: CapacityRequest | None = None
) -> CapacityAnswer | str | None:
    """Compute what the load needs that is ``wanted``, by default in the sweep file.

    Return None if the sweep has no section ``capacity``, and a text that says why if nothing can be computed."""
    of = spec.capacity
    if of is None:
        return None
    cells, unused = _cells(results, of)
    try:
        model = fit([(at, value) for _, at, value in cells])
    except (NoStatisticsError, TooFewCellsError) as error:
        return str(error)
    wanted = wanted or of.wanted
    nodes = model.nodes_needed(of.nodes, wanted.per_s, wanted.cores_a_node, wanted.at)
    at = {**wanted.at, of.nodes: nodes.middle if math.isfinite(nodes.middle) else model.ranges[of.nodes][1]}
    low, middle, high = (edge * wanted.cores_a_node for edge in (nodes.low, nodes.middle, nodes.high))
    return CapacityAnswer(
        spec.title,
        wanted,
        of.nodes,
        model,
        nodes,
        ConfidenceInterval(low, middle, high, nodes.level),
        model.predict(at),
        model.outside(at),
        _most_s(results, of),
        _queues(results, of, wanted.per_s, at[of.nodes]),
        missing_runs(results, spec),
        list(_left_out(of, cells)),
        [_predicted(model, known) for known in of.beside],
        unused,
    )


def _cells(results: Results, of: Capacity) -> tuple[list[tuple[str, Mapping[str, float], float]], int]:
    """Return (name, factors, median) of each cell that the model uses, and the number of unused cells."""
    cells, unused = [], 0
    for labels, values in _values(results, OF).items():
        middle = median_interval(values).middle if values else math.nan
        if 0 < middle < math.inf:
            cells.append((where(dict(labels)), _factors(of, dict(labels)), middle))
        else:
            unused += 1
    return cells, unused


def _values(results: Results, measure: str) -> dict[tuple[tuple[str, str], ...], list[float]]:
    """Return {labels of a cell: its numbers}.

    The numbers are empty if a run broke a promise, or if most runs have no number. The remaining runs would make the
    cell look too good."""
    cells: dict[tuple[tuple[str, str], ...], list[ResultRow]] = {}
    for line in results.final:
        cells.setdefault(tuple(line.labels.items()), []).append(line)
    found = {}
    for labels, lines in cells.items():
        values = [*by_round(lines, measure).values()]
        usable = 2 * len(values) > len(lines) and not any(line.verdict == "INVALID" for line in lines)
        found[labels] = values if usable else []
    return found


def _factors(of: Capacity, labels: Mapping[str, str]) -> Mapping[str, float]:
    numbers = {axis: number_of(labels[axis]) for axis in of.by}
    return {axis: number for axis, number in numbers.items() if number is not None}


def _most_s(results: Results, of: Capacity) -> float | None:
    """Return the largest median rate of a cell; None if no rate was measured."""
    medians = [median_interval(values).middle for values in _values(results, of.rate).values() if values]
    return max(filter(math.isfinite, medians), default=None)


def _queues(results: Results, of: Capacity, per_s: float, nodes: float) -> EnoughQueues | None:
    """Return how many queues are enough if each carries as much as one did in the worst run of the best cell.

    Only cells with as many nodes count, or with the most that were measured: each further member of a queue may cost
    some of its rate. The worst run is taken, as the best of many medians is often a lucky one. A queue may carry more:
    if clients or processors were the limit, it did not reach its own."""
    if of.queues not in of.by:
        return None
    worst = {labels: min(values) for labels, values in _values(results, of.rate).items() if values}
    enough = min(nodes, max((_factors(of, dict(labels))[of.nodes] for labels in worst), default=0.0))
    carried = {
        labels: least / _factors(of, dict(labels))[of.queues]
        for labels, least in worst.items()
        if _factors(of, dict(labels))[of.nodes] >= enough
    }
    best = max(carried, key=lambda labels: carried[labels], default=None)
    if best is None or carried[best] <= 0:
        return None
    return EnoughQueues(math.ceil(per_s / carried[best]), where(dict(best)))


def _left_out(of: Capacity, cells: Sequence[tuple[str, Mapping[str, float], float]]) -> list[PredictedCell]:
    """Predict the cells of each left-out label from the cells of all other labels."""
    found = []
    for axis, labels in of.left_out.items():
        for number in map(number_of, labels):
            inside = [(at, value) for _, at, value in cells if at[axis] != number]
            apart = [(name, at, value) for name, at, value in cells if at[axis] == number]
            if not apart:
                found.append(PredictedCell(f"{axis} {number:,.10g}", math.nan, None, why="no such cell has a number"))
            try:
                model = fit(inside)
            except (NoStatisticsError, TooFewCellsError) as error:
                found += [PredictedCell(name, value, None, why=str(error)) for name, _, value in apart]
                continue
            found += [PredictedCell(name, value, model.predict(at), model.outside(at)) for name, at, value in apart]
    return found


def _predicted(model: Model, known: KnownCapacity) -> PredictedCell:
    return PredictedCell(known.what, known.per_s / known.cores, model.predict(known.at), model.outside(known.at))
