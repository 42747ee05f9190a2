"""What the cells of a sweep say that a load needs, and what that is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.sweeps.capacity import Capacity, Known, Wanted, number_of
from rabbitmq_resilience.sweeps.capacity_model import Model, TooFewCellsError, fitted
from rabbitmq_resilience.sweeps.results import Results
from rabbitmq_resilience.sweeps.spec import SweepSpec
from rabbitmq_resilience.sweeps.statistics import Interval, median_interval
from rabbitmq_resilience.sweeps.wheres import where


@dataclass(frozen=True)
class Foretold:
    """What was measured beside what the model says of it. ``by_model`` is None where too little is left for one, and
    ``why`` says so. ``outside``: factors that lie outside what the model knows."""

    what: str
    measured: float
    by_model: Interval | None
    outside: Sequence[str] = ()
    why: str = ""

    @property
    def is_within(self) -> bool:
        return self.by_model is not None and self.by_model.low <= self.measured <= self.by_model.high

    @property
    def times(self) -> float:
        """What was measured, as so many times what the model says."""
        return self.measured / self.by_model.middle if self.by_model is not None else math.nan


@dataclass(frozen=True)
class Told:
    """``nodes``, ``cores`` and ``per_core_s`` of what is ``wanted``; ``outside``: factors that lie outside what was
    measured. ``queues``: so many are enough, by what one queue carried at the most. ``left_out``: cells that were
    foretold from those of other labels. ``unused``: cells without a number."""

    wanted: Wanted
    model: Model
    nodes: Interval
    cores: Interval
    per_core_s: Interval
    outside: Sequence[str]
    queues: Interval | None
    left_out: Sequence[Foretold]
    beside: Sequence[Foretold]
    unused: int

    @property
    def within(self) -> int:
        return sum(one.is_within for one in self.left_out)


Cell = tuple[Mapping[str, float], float]


def capacity(results: Results, spec: SweepSpec, *, wanted: Wanted | None = None) -> Told | str | None:
    """What is ``wanted``, or what the sweep says that is; None of a sweep that does not ask for it. A text says why
    nothing can be told."""
    of = spec.capacity
    if of is None:
        return None
    cells, unused = _cells(results, of)
    try:
        model = fitted([(at, value) for _, at, value in cells])
    except TooFewCellsError as error:
        return str(error)
    wanted = wanted or of.wanted
    nodes = model.nodes_needed(of.nodes, wanted.per_s, wanted.cores_a_node, wanted.at)
    at = {**wanted.at, of.nodes: nodes.middle if math.isfinite(nodes.middle) else model.ranges[of.nodes][1]}
    low, middle, high = (edge * wanted.cores_a_node for edge in (nodes.low, nodes.middle, nodes.high))
    return Told(
        wanted,
        model,
        nodes,
        Interval(low, middle, high, nodes.level),
        model.foretold(at),
        model.outside(at),
        _queues(results, of, wanted.per_s),
        list(_left_out(of, cells)),
        [_beside(model, known) for known in of.beside],
        unused,
    )


def _cells(results: Results, of: Capacity) -> tuple[list[tuple[str, Mapping[str, float], float]], int]:
    """Each cell with a number above 0: its name, its factors, its median; and how many there are without one."""
    cells, unused = [], 0
    for labels, values in _values(results, of.of).items():
        finite = [value for value in values if 0 < value < math.inf]
        if finite:
            cells.append((where(dict(labels)), _factors(of, dict(labels)), median_interval(finite).middle))
        else:
            unused += 1
    return cells, unused


def _values(results: Results, measure: str) -> dict[tuple[tuple[str, str], ...], list[float]]:
    found: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for line in results.lines:
        mine = found.setdefault(tuple(line.labels.items()), [])
        if line.status == "measured" and (value := line.values.get(measure)) is not None:
            mine.append(value)
    return found


def _factors(of: Capacity, labels: Mapping[str, str]) -> Mapping[str, float]:
    numbers = {axis: number_of(labels[axis]) for axis in of.by}
    return {axis: number for axis, number in numbers.items() if number is not None}


def _queues(results: Results, of: Capacity, per_s: float) -> Interval | None:
    """How many queues are enough, if each carries as much as one did in the best cell. More may be carried by one:
    where clients or processors were the limit, it was not asked for all that it could."""
    if of.queues not in of.by:
        return None
    carried = [
        (median_interval(finite), _factors(of, dict(labels))[of.queues])
        for labels, values in _values(results, of.rate).items()
        if (finite := [value for value in values if 0 < value < math.inf])
    ]
    if not carried:
        return None
    rate, queues = max(carried, key=lambda one: one[0].middle / one[1])
    low, middle, high = (float(math.ceil(per_s * queues / edge)) for edge in (rate.high, rate.middle, rate.low))
    return Interval(low, middle, high, rate.level)


def _left_out(of: Capacity, cells: Sequence[tuple[str, Mapping[str, float], float]]) -> list[Foretold]:
    found = []
    for axis, labels in of.left_out.items():
        for number in map(number_of, labels):
            inside = [(at, value) for _, at, value in cells if at[axis] != number]
            apart = [(name, at, value) for name, at, value in cells if at[axis] == number]
            try:
                model = fitted(inside)
            except TooFewCellsError as error:
                found += [Foretold(name, value, None, why=str(error)) for name, _, value in apart]
                continue
            found += [Foretold(name, value, model.foretold(at), model.outside(at)) for name, at, value in apart]
    return found


def _beside(model: Model, known: Known) -> Foretold:
    return Foretold(known.what, known.per_s / known.cores, model.foretold(known.at), model.outside(known.at))
