"""Make the cells of a sweep, each a scenario with one label of each axis, and order them for playing."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.extensions.sweeps.sweep_model import Axis, SweepSpec
from rabbitmq_resilience.model.yaml_files import Location
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.workload_model import Workload


@dataclass(frozen=True)
class PlayedOn:
    """What a cell is played on: a driver, and a version, image or folder of the broker. None: that of the session."""

    driver: str | None = None
    broker: str | None = None


@dataclass(frozen=True)
class Cell:
    """A scenario of the sweep. ``labels``: {axis: label}.

    ``here``: whether the cell is played without ``-m whole_grid`` too. ``perf_test``: whether PerfTest is played on the
    same cluster too."""

    labels: Mapping[str, str]
    scenario: Scenario
    here: bool = True
    on: PlayedOn = PlayedOn()
    perf_test: bool = False

    @property
    def name(self) -> str:
        return ", ".join(f"{axis} {label}" for axis, label in self.labels.items())


@dataclass(frozen=True)
class Choice:
    """What a cell changes in the base.

    ``chosen``: {number of the axis: label}. ``labels``: {name of the axis: label}. ``changes``: {path of a field:
    (number of the axis, value)}."""

    chosen: Mapping[int, str]
    labels: Mapping[str, str]
    changes: Mapping[str, tuple[int, Any]]
    here: bool


def choices(spec: SweepSpec) -> Iterator[Choice]:
    """Yield the choices of all cells that are not left out, in the order of the axes; the last axis varies fastest."""
    for labels in itertools.product(*(axis.choices for axis in spec.axes)):
        named = {axis.called: label for axis, label in zip(spec.axes, labels, strict=True)}
        if any(left.items() <= named.items() for left in spec.leave_out):
            continue
        changes = {
            path: (number, value)
            for number, (axis, label) in enumerate(zip(spec.axes, labels, strict=True))
            for path, value in axis.choices[label].items()
        }
        here = all(_is_here(axis, label) for axis, label in zip(spec.axes, labels, strict=True))
        here = here and not any(left.items() <= named.items() for left in spec.leave_out_here)
        yield Choice(dict(enumerate(labels)), named, changes, here)


def _is_here(axis: Axis, label: str) -> bool:
    return axis.here is None or label in axis.here


def changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the base with values set at paths. Mappings that are missing on a path are made.

    Raise LookupError with the path if it leads into something that is no mapping or list, or to an index that the list
    does not have."""
    plain: dict[str, Any] = copy.deepcopy(dict(base))
    for path, value in sorted(changes.items(), key=lambda one: one[0].count(".")):
        place: Any = plain
        *way, last = parts(path)
        try:
            for part in way:
                place = place[_place_in_list(part)] if isinstance(place, list) else place.setdefault(part, {})
            if isinstance(place, list):
                place[_place_in_list(last)] = copy.deepcopy(value)
            else:
                place.update({last: copy.deepcopy(value)})
        except (AttributeError, TypeError, ValueError, IndexError):
            raise LookupError(path) from None
    return plain


def _place_in_list(part: str) -> int:
    """Return the index that ``part`` names. Raise ValueError for any but the usual spelling of a number.

    Two paths so never name the same field."""
    if not part.isdecimal() or part != str(int(part)):
        raise ValueError(part)
    return int(part)


def parts(path: str) -> list[str]:
    """Split a path into its fields. The names of settings in rabbitmq.conf contain dots and stay whole."""
    split = path.split(".")
    return [*split[:2], ".".join(split[2:])] if split[:2] == ["topology", "settings"] and split[2:] else split


def rounds(cells: Sequence[Cell], repeats: int, *, seed: int) -> Iterator[tuple[int, Cell]]:
    """Yield (round, cell): each cell once a round, with rounds counted from 1.

    The order is drawn for every other round and reversed for the round after it. Of two cells, each so comes first
    equally often, and an effect of the order cancels out. The cells of one cluster stay together, as they share it."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cluster_of(cell), []).append(cell)
    for number in range(1, repeats + 1, 2):
        drawn = random.Random(f"{seed} {number}")  # noqa: S311 - an order, no secret
        order = [drawn.sample(group, len(group)) for group in drawn.sample(list(groups.values()), len(groups))]
        turn = [cell for group in order for cell in group]
        yield from ((number, cell) for cell in turn)
        if number < repeats:
            yield from ((number + 1, cell) for cell in reversed(turn))


def cluster_of(cell: Cell) -> str:
    """Return a key that is the same for cells that may be played on one cluster, one after another."""
    scenario = cell.scenario
    parts: Iterable[object] = (
        cell.on,
        scenario.topology.model_dump_json(),
        sorted(map(str, scenario.touched_links)),
        scenario.equipment,
        scenario.metrics,
    )
    return repr(list(parts))


def not_measured(cells: Sequence[Cell]) -> Iterator[tuple[Location, str]]:
    """Yield a problem if the load of a cell is not generated, as nothing sets its rates."""
    if any(not isinstance(cell.scenario.workload, Workload) for cell in cells):
        yield ("base",), "a sweep measures a generated load; play an application by itself"
