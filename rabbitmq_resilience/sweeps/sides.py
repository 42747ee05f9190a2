"""What is compared: labels of an axis, two results of a sweep, or two nights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

from rabbitmq_resilience.nights.night_file import Night, Played
from rabbitmq_resilience.sweeps.comparison import Comparison, Runs, Side, compare
from rabbitmq_resilience.sweeps.measures import OF_NIGHTS, told_of
from rabbitmq_resilience.sweeps.results import MAY_DIFFER, Line, Of, Results
from rabbitmq_resilience.sweeps.spec import SweepSpec
from rabbitmq_resilience.sweeps.wheres import where
from rabbitmq_resilience.tables.rate import Rate


def of_axis(results: Results, spec: SweepSpec) -> list[Comparison]:
    """Each label of the axis that is ``compared`` beside its first one, as far as they were played."""
    axis = next((axis for axis in spec.axes if axis.called == spec.compared), None)
    if axis is None:
        return []
    sides = {label: Side(label, _cells(results.lines, axis.called, label)) for label in axis.choices}
    first, *others = [side for side in sides.values() if side.runs] or [Side("", {})]
    return [compare(first, other, among=len(others)) for other in others]


def _cells(lines: Sequence[Line], axis: str, label: str) -> dict[str, Runs]:
    by_cell: dict[str, list[Line]] = {}
    for line in lines:
        if line.labels.get(axis) == label:
            by_cell.setdefault(where(line.labels, without=axis), []).append(line)
    return {cell: _runs(mine) for cell, mine in by_cell.items()}


def of_results(results: Results, name: str) -> Side:
    """All cells of a sweep."""
    by_cell: dict[str, list[Line]] = {}
    for line in results.lines:
        by_cell.setdefault(where(line.labels), []).append(line)
    return Side(name, {cell: _runs(mine) for cell, mine in by_cell.items()})


def _runs(lines: Sequence[Line]) -> Runs:
    names = {name: None for line in lines for name in line.values}
    told = [line for line in lines if line.status == "measured"]
    return Runs(
        {name: [value for line in told if (value := line.values.get(name)) is not None] for name in names},
        _broke([line.verdict for line in lines]),
        len(lines) - len(told),
    )


def _broke(verdicts: Sequence[str]) -> Rate | None:
    told = [verdict for verdict in verdicts if verdict in ("VALID", "INVALID")]
    return Rate(told.count("INVALID"), len(told)) if told else None


def of_nights(nights: Sequence[Night], name: str) -> Side:
    """All scenarios of one night or several, but for schedules that are drawn anew each time."""
    by_scenario: dict[str, list[Played]] = {}
    for night in nights:
        for played in night.played:
            if not played.drawn:
                by_scenario.setdefault(played.scenario, []).append(played)
    return Side(name, {scenario: _played(mine) for scenario, mine in by_scenario.items()})


def _played(mine: Sequence[Played]) -> Runs:
    told = [played for played in mine if played.verdict != "UNKNOWN"]
    values = {field: [value for played in told if (value := told_of(played, field)) is not None] for field in OF_NIGHTS}
    return Runs(values, _broke([played.verdict for played in mine]), len(mine) - len(told))


def results_apart(first: Of, second: Of) -> Iterator[str]:
    """What else is different: the difference may come of that."""
    for field in fields(Of):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if field.name not in MAY_DIFFER | {"digest"} and a != b:
            yield f"{field.name.replace('_', ' ')}: {a} and {b}"
    if first.digest != second.digest:
        yield "the sweep files: only cells with the same labels are compared, and they may mean something else"


def nights_apart(first: Sequence[Night], second: Sequence[Night]) -> Iterator[str]:
    """What else is different: the difference may come of that."""
    told: Mapping[str, Callable[[Night], Iterable[object]]] = {
        "machine": lambda night: [night.header.machine.id],
        "suite commit": lambda night: [night.header.suite_commit],
        "driver": lambda night: [played.driver for played in night.played],
        "RabbitMQ": lambda night: [played.broker_version for played in night.played],
    }
    for what, of in told.items():
        a, b = (sorted({str(one) for night in nights for one in of(night)}) for nights in (first, second))
        if a != b:
            yield f"{what}: {', '.join(a)} and {', '.join(b)}"
