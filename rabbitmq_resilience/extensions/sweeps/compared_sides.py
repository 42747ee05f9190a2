"""Make the sides of a comparison: from labels of an axis, from two results of a sweep, or from two nights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

from rabbitmq_resilience.extensions.nights.night_file import Night
from rabbitmq_resilience.extensions.sweeps.comparison import ComparedSide, Comparison, Runs, compare
from rabbitmq_resilience.extensions.sweeps.measures import MEASURES, OF_NIGHTS
from rabbitmq_resilience.extensions.sweeps.missing_runs import missing_runs
from rabbitmq_resilience.extensions.sweeps.paired import by_round, in_both
from rabbitmq_resilience.extensions.sweeps.results import MAY_DIFFER, STATED, Of, ResultRow, Results
from rabbitmq_resilience.extensions.sweeps.sweep_file import SweepFileError, stated_spec
from rabbitmq_resilience.extensions.sweeps.sweep_model import SweepSpec
from rabbitmq_resilience.extensions.sweeps.wheres import where
from rabbitmq_resilience.report.rate import Rate
from rabbitmq_resilience.runner.run_line import RunLine


def of_axis(results: Results, spec: SweepSpec) -> dict[int, Comparison]:
    """Compare each label of the axis ``compared`` with its first one, if both were played.

    Return {number of the label, from 1: comparison}; empty if no axis is compared. Only rounds in which both gave
    numbers count. Messages a second are compared only if both labels leave the load's rate as it was."""
    axis = next((axis for axis in spec.axes if axis.called == spec.compared), None)
    if axis is None:
        return {}
    sides = {label: _cells(results.final, axis.called, label) for label in axis.choices}
    (first, mine), *others = sides.items()
    played = sum(bool(mine and theirs) for _, theirs in others)
    found = {}
    for place, (other, theirs) in enumerate(others, 2):
        if mine and theirs:
            both = [_paired(mine, theirs), _paired(theirs, mine)]
            if _stated_rate(axis.choices[first]) != _stated_rate(axis.choices[other]):
                both = [_without_paced(side) for side in both]
            sides_of = [ComparedSide(label, runs) for label, runs in zip((first, other), both, strict=True)]
            found[place] = compare(*sides_of, among=played)
    return found


#: The last parts of the fields by which a scenario states how many messages a second there are.
_RATE_FIELDS = {"base", "workload", "preset", "scale", "rate_per_s", "variable_rate"}


def _stated_rate(choice: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields of a label that may change the load's rate."""
    return {field: value for field, value in choice.items() if field.rpartition(".")[2] in _RATE_FIELDS}


def _without_paced(cells: Mapping[str, Runs]) -> dict[str, Runs]:
    """Return the runs without measures that are as high as the load states."""
    return {
        cell: replace(runs, values={n: v for n, v in runs.values.items() if n not in MEASURES or not MEASURES[n].paced})
        for cell, runs in cells.items()
    }


_Cells = Mapping[str, Sequence[ResultRow]]


def _cells(lines: Sequence[ResultRow], axis: str, label: str) -> _Cells:
    by_cell: dict[str, list[ResultRow]] = {}
    for line in lines:
        if line.labels.get(axis) == label:
            by_cell.setdefault(where(line.labels, without=axis), []).append(line)
    return by_cell


def _paired(cells: _Cells, others: _Cells) -> dict[str, Runs]:
    """Return the runs of one side, without numbers and verdicts of rounds in which the other side has none."""
    found = {}
    for cell, mine in cells.items():
        runs = _runs(mine)
        if cell in others:
            theirs = others[cell]
            numbers = {name: in_both(by_round(mine, name), by_round(theirs, name))[0] for name in runs.values}
            decided = {line.round for line in theirs if line.verdict in _DECIDED}
            broke = _broke([line.verdict for line in mine if line.round in decided])
            unpaired = sum(line.verdict == "INVALID" and line.round not in decided for line in mine)
            runs = replace(runs, values=numbers, broke=broke, unpaired=unpaired)
        found[cell] = runs
    return found


def of_results(results: Results, name: str) -> ComparedSide:
    """Return a side with all cells of a sweep."""
    by_cell: dict[str, list[ResultRow]] = {}
    for line in results.final:
        by_cell.setdefault(where(line.labels), []).append(line)
    return ComparedSide(name, {cell: _runs(mine) for cell, mine in by_cell.items()})


def _runs(lines: Sequence[ResultRow]) -> Runs:
    names = {name: None for line in lines for name in line.values}
    measured = [line for line in lines if line.status == "measured"]
    return Runs(
        {name: [value for line in measured if (value := line.values.get(name)) is not None] for name in names},
        _broke([line.verdict for line in lines]),
        len(lines) - len(measured),
    )


#: Verdicts that say whether a promise was kept.
_DECIDED = ("VALID", "INVALID")


def _broke(verdicts: Sequence[str]) -> Rate | None:
    decided = [verdict for verdict in verdicts if verdict in _DECIDED]
    return Rate(decided.count("INVALID"), len(decided)) if decided else None


def of_nights(nights: Sequence[Night], name: str) -> ComparedSide:
    """Return a side with all scenarios of one or more nights, except schedules that are drawn at random each night."""
    by_scenario: dict[str, list[RunLine]] = {}
    for night in nights:
        for played in night.played:
            if not played.drawn:
                by_scenario.setdefault(played.scenario, []).append(played)
    return ComparedSide(name, {scenario: _played(mine) for scenario, mine in by_scenario.items()})


def _played(mine: Sequence[RunLine]) -> Runs:
    decided = [played for played in mine if played.verdict != "UNKNOWN"]
    values = {
        field: [value for played in decided if (value := played.number(field)) is not None] for field in OF_NIGHTS
    }
    return Runs(values, _broke([played.verdict for played in mine]), len(mine) - len(decided))


def results_apart(first: Results, second: Results) -> Iterator[str]:
    """Yield what else differs between two results of sweeps, and so may cause a difference, and how much is missing."""
    one, other = first.of, second.of
    if one is None or other is None:
        return
    for field in fields(Of):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name not in MAY_DIFFER | {"digest"} and a != b:
            yield f"{field.name.replace('_', ' ')}: {a} and {b}"
    if one.broker_version == other.broker_version:
        yield from _shares_apart(
            "RabbitMQ",
            [line.broker_version for line in first.final if line.run],
            [line.broker_version for line in second.final if line.run],
        )
    if one.digest != other.digest:
        yield "the sweep files: only cells with the same labels are compared, and they may mean something else"
    for results in (first, second):
        try:
            missing = missing_runs(results, stated_spec(results.folder / STATED))
        except SweepFileError:
            missing = f"{STATED} cannot be read, so it is unknown whether runs are missing"
        if missing:
            yield f"{results.folder}: {missing}"


def nights_apart(first: Sequence[Night], second: Sequence[Night]) -> Iterator[str]:
    """Yield what else differs between the runs of two groups of nights, and so may cause a difference."""
    conditions: Mapping[str, Callable[[Night, RunLine], object]] = {
        "machine": lambda night, _: night.header.machine.id,
        "suite commit": lambda night, _: night.header.suite_commit,
        "driver": lambda _, played: played.driver,
        "RabbitMQ": lambda _, played: played.broker_version,
    }
    for what, of in conditions.items():
        a, b = (
            [(played.scenario, str(of(night, played))) for night in nights for played in night.played]
            for nights in (first, second)
        )
        yield from _shares_apart(what, *([value for _, value in side] for side in (a, b))) or _elsewhere(what, a, b)


_ByScenario = Sequence[tuple[str, str]]


def _elsewhere(what: str, first: _ByScenario, second: _ByScenario) -> Sequence[str]:
    """Return a sentence about scenarios in which the two differ, though they are alike over all scenarios."""
    sides = [_by_scenario(side) for side in (first, second)]
    both = sorted(sides[0].keys() & sides[1].keys())
    apart = [scenario for scenario in both if _shares_apart(what, *(side[scenario] for side in sides))]
    if not apart:
        return []
    more = f", and {len(apart) - 1} more" if len(apart) > 1 else ""
    return [f"{what}: alike over all scenarios, but not in {apart[0]}{more}"]


def _by_scenario(side: _ByScenario) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for scenario, value in side:
        found.setdefault(scenario, []).append(value)
    return found


def _shares_apart(what: str, first: Sequence[str], second: Sequence[str]) -> Sequence[str]:
    """Return a sentence if the two have different values, or the same values in different proportions."""
    a, b = Counter(first), Counter(second)
    if a.keys() != b.keys():
        return [f"{what}: {', '.join(sorted(a))} and {', '.join(sorted(b))}"]
    if any(a[one] * b.total() != b[one] * a.total() for one in a):
        return [f"{what}: {_counted(a)} on one side, {_counted(b)} on the other"]
    return []


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{found[one]} times {one}" for one in sorted(found))
