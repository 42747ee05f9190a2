"""What the cells of a sweep say that a load needs, and what that is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.sweeps.capacity import OF, Capacity, Known, Wanted, number_of
from rabbitmq_resilience.sweeps.capacity_model import NODES_MAX, Model, TooFewCellsError, fitted
from rabbitmq_resilience.sweeps.paired import by_round
from rabbitmq_resilience.sweeps.results import Line, Results
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
    measured. ``queues``: so many are enough, by what one queue carried in every run of some cell. ``left_out``: cells
    that were foretold from those of other labels. ``unused``: cells without a number in most of their runs, or in which
    a promise was broken."""

    wanted: Wanted
    of_nodes: str
    model: Model
    nodes: Interval
    cores: Interval
    per_core_s: Interval
    outside: Sequence[str]
    queues: float | None
    left_out: Sequence[Foretold]
    beside: Sequence[Foretold]
    unused: int

    @property
    def more_than(self) -> int | None:
        """More nodes than so many are needed, which nobody has; None where the model has a number of them, or none
        would do: each that is added costs more than it brings."""
        grows = self.model.powers[self.of_nodes].middle > -1
        return NODES_MAX if math.isinf(self.nodes.middle) and grows else None

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
        of.nodes,
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
    """Each cell that is used: its name, its factors, its median; and how many are not."""
    cells, unused = [], 0
    for labels, values in _values(results, OF).items():
        middle = median_interval(values).middle if values else math.nan
        if 0 < middle < math.inf:
            cells.append((where(dict(labels)), _factors(of, dict(labels)), middle))
        else:
            unused += 1
    return cells, unused


def _values(results: Results, measure: str) -> dict[tuple[tuple[str, str], ...], list[float]]:
    """Of each cell; none of one in which a promise was broken, or of which most runs have no number: what is left of it
    would make it look better than it is."""
    cells: dict[tuple[tuple[str, str], ...], list[Line]] = {}
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


def _queues(results: Results, of: Capacity, per_s: float) -> float | None:
    """How many queues are enough, if each carries as much as one did in the worst run of the best cell; by medians, the
    best cell of many is often the luckiest one. More may be carried by one: where clients or processors were the limit,
    it was not asked for all that it could."""
    if of.queues not in of.by:
        return None
    told = ((min(values), dict(labels)) for labels, values in _values(results, of.rate).items() if values)
    carried = max((least / _factors(of, labels)[of.queues] for least, labels in told), default=0.0)
    return float(math.ceil(per_s / carried)) if carried > 0 else None


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
