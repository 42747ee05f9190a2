"""The cells of a sweep: scenarios, each one label of each axis; and the order in which they are played."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.scenarios.model import Scenario
from rabbitmq_resilience.sweeps.spec import Axis, SweepSpec


@dataclass(frozen=True)
class PlayedOn:
    """What a cell is played on: a driver, and a version, image or folder of the broker. None: as the session is."""

    driver: str | None = None
    broker: str | None = None


@dataclass(frozen=True)
class Cell:
    """``labels``: {axis: label}. ``here``: whether it is played unless the whole grid is asked for. ``perf_test``:
    whether PerfTest is played beside it."""

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
    """What a cell changes in the base. ``chosen``: the number of each axis and the label."""

    chosen: Mapping[int, str]
    labels: Mapping[str, str]
    changes: Mapping[str, tuple[int, Any]]
    here: bool


def choices(spec: SweepSpec) -> Iterator[Choice]:
    """In the order of the axes, the last one fastest."""
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
    """The base with values at paths; what is on the way and is not there is made. Raises LookupError with the path for
    what is no mapping or list, or has no such place."""
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
    """Written in one way only, so that no two paths are the same field. Raises ValueError."""
    if not part.isdecimal() or part != str(int(part)):
        raise ValueError(part)
    return int(part)


def parts(path: str) -> list[str]:
    """Of a path of fields. Names of lines in rabbitmq.conf have dots themselves."""
    split = path.split(".")
    return [*split[:2], ".".join(split[2:])] if split[:2] == ["topology", "settings"] and split[2:] else split


def rounds(cells: Sequence[Cell], repeats: int, *, seed: int) -> Iterator[tuple[int, Cell]]:
    """Each cell once a round, in an order that is drawn anew for every other round and turned round for the next one:
    of two cells each comes first as often, so that it does not matter where being first does. Those of one cluster stay
    together, as they share it. Rounds are counted from 1."""
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
    """The same for cells that may be played on one cluster, one after another."""
    scenario = cell.scenario
    parts: Iterable[object] = (
        cell.on,
        scenario.topology.model_dump_json(),
        sorted(map(str, scenario.touched_links)),
        scenario.equipment,
        scenario.metrics,
    )
    return repr(list(parts))
