"""What is compared: labels of an axis, two results of a sweep, or two nights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

from rabbitmq_resilience.nights.night_file import Night, Played
from rabbitmq_resilience.sweeps.comparison import Comparison, Runs, Side, compare
from rabbitmq_resilience.sweeps.measures import OF_NIGHTS, told_of
from rabbitmq_resilience.sweeps.paired import by_round, in_both
from rabbitmq_resilience.sweeps.results import MAY_DIFFER, Line, Of, Results
from rabbitmq_resilience.sweeps.spec import SweepSpec
from rabbitmq_resilience.sweeps.wheres import where
from rabbitmq_resilience.tables.rate import Rate


def of_axis(results: Results, spec: SweepSpec) -> dict[int, Comparison]:
    """{place of the label, from 1: the label beside the first one} of the axis that is ``compared``, as far as both
    were played; in the rounds in which both gave numbers."""
    axis = next((axis for axis in spec.axes if axis.called == spec.compared), None)
    if axis is None:
        return {}
    sides = {label: _cells(results.final, axis.called, label) for label in axis.choices}
    (first, mine), *others = sides.items()
    played = sum(bool(mine and theirs) for _, theirs in others)
    return {
        place: compare(Side(first, _beside(mine, theirs)), Side(other, _beside(theirs, mine)), among=played)
        for place, (other, theirs) in enumerate(others, 2)
        if mine and theirs
    }


_Cells = Mapping[str, Sequence[Line]]


def _cells(lines: Sequence[Line], axis: str, label: str) -> _Cells:
    by_cell: dict[str, list[Line]] = {}
    for line in lines:
        if line.labels.get(axis) == label:
            by_cell.setdefault(where(line.labels, without=axis), []).append(line)
    return by_cell


def _beside(cells: _Cells, others: _Cells) -> dict[str, Runs]:
    """Of one side, without the numbers of rounds in which the other one has none."""
    found = {}
    for cell, mine in cells.items():
        runs = _runs(mine)
        numbers = {
            name: in_both(by_round(mine, name), by_round(others[cell], name))[0] if cell in others else values
            for name, values in runs.values.items()
        }
        found[cell] = replace(runs, values=numbers)
    return found


def of_results(results: Results, name: str) -> Side:
    """All cells of a sweep."""
    by_cell: dict[str, list[Line]] = {}
    for line in results.final:
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
