"""The fields of a sweep file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rabbitmq_resilience.extensions.sweeps.capacity import Capacity
from rabbitmq_resilience.extensions.sweeps.measures import MEASURES, needs_perf_test
from rabbitmq_resilience.extensions.sweeps.prices import RATES, Label, Leaderboard
from rabbitmq_resilience.extensions.sweeps.results import COLUMNS
from rabbitmq_resilience.extensions.sweeps.seen import Over
from rabbitmq_resilience.model.base import Spec

CELLS_MAX = 1000

#: Paths that name no field of the scenario: the scenario itself, and what it is played on.
BASE = "base"
ON = ("on.driver", "on.broker")

Base = dict[str, Any] | Annotated[str, Field(pattern=r"\.ya?ml$")]

#: A field of the base, such as ``workload.in_flight`` or ``schedule.0.at_s``.
FieldPath = Annotated[str, Field(pattern=r"^\w+(\.[\w$-]+)*$", max_length=200)]


def _measure(name: str) -> str:
    if name not in MEASURES:
        raise ValueError(f"{name!r} is no measure; there are {', '.join(MEASURES)}")
    return name


class Axis(Spec):
    """Vary one ``field`` over ``values``, or several fields together, with a label for each of the ``settings``.

    ``name``: the name of the axis in tables; by default the last part of ``field``. ``here``: the labels that are
    played without ``-m whole_grid`` too; by default all. The label of a value is its JSON text without quotes."""

    name: Label | None = None
    field: FieldPath | None = None
    values: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    settings: Annotated[dict[Label, dict[FieldPath, Any]], Field(min_length=1)] | None = None
    here: Annotated[tuple[Label, ...], Field(min_length=1)] | None = None

    @property
    def called(self) -> str:
        """Return the name of the axis in tables."""
        return self.name or (self.field or "").rpartition(".")[2]

    @property
    def choices(self) -> Mapping[str, Mapping[str, Any]]:
        """Return {label: {field: value}}, in the order of the file."""
        if self.settings is not None:
            return self.settings
        assert self.field is not None and self.values is not None
        return {label_of(value): {self.field: value} for value in self.values}

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.field is None) != (self.values is None) or (self.field is None) == (self.settings is None):
            raise ValueError("an axis has either field and values, or settings: {label: {field: value}}")
        if self.settings is not None and self.name is None:
            raise ValueError("an axis with settings needs a name, for the table")
        if self.values is not None and len(self.choices) < len(self.values):
            raise ValueError("two of its values are the same")
        if unknown := [label for label in self.here or () if label not in self.choices]:
            raise ValueError(f"here: no {', '.join(unknown)}; there are {', '.join(self.choices)}")
        return self


class SweepSpec(Spec):
    """Play one scenario over values of some of its fields.

    ``base``: the scenario, or the path of its fault file; not needed if an axis states ``base`` for each of its labels.
    Each cell has one label of each axis. Cells that ``leave_out`` names by some of their labels ({axis: label}) are not
    played. Those that ``leave_out_here`` names are played with ``-m whole_grid`` only. ``repeats``: how often each cell
    is played, all cells in turn, so that a busy minute does not fall on one setting; a difference can be shown from
    four on. ``measures``: what is measured, of messages that were due ``over`` the steady phase, the chaos phase, or
    always. ``budget_min``: no cell begins after that time; the next session goes on."""

    version: Literal[1] = 1
    title: Annotated[str, Field(min_length=1, max_length=120)]
    what: Annotated[str, Field(max_length=2000)] | None = None
    base: Base | None = None
    axes: Annotated[tuple[Axis, ...], Field(min_length=1, max_length=4)]
    leave_out: tuple[dict[Label, Label], ...] = ()
    leave_out_here: tuple[dict[Label, Label], ...] = ()
    repeats: Annotated[int, Field(ge=1, le=100)] = 4
    measures: Annotated[tuple[Annotated[str, AfterValidator(_measure)], ...], Field(min_length=1)]
    over: Over = "steady"
    compared: Label | None = None
    leaderboard: Leaderboard | None = None
    capacity: Capacity | None = None
    budget_min: Annotated[float, Field(gt=0, le=10_000)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0

    @model_validator(mode="after")
    def _names(self) -> Self:
        names = [axis.called for axis in self.axes]
        if len(set(names)) < len(names):
            raise ValueError(f"axes are called {', '.join(names)}; give each a name of its own")
        if taken := sorted({*COLUMNS, *self.measures}.intersection(names)):
            raise ValueError(f"axes: {taken[0]} is a column of the results already; give the axis another name")
        known = {axis.called: axis.choices for axis in self.axes}
        for field in ("leave_out", "leave_out_here"):
            for name, label in (stated for left in getattr(self, field) for stated in left.items()):
                if label not in known.get(name, ()):
                    raise ValueError(f"{field}: there is no {name}: {label}")
        if self.base is None and not any(all(BASE in s for s in axis.choices.values()) for axis in self.axes):
            raise ValueError("base: state a scenario or its file, or one for each label of an axis")
        if self.compared is not None and len(known.get(self.compared, ())) < 2:
            raise ValueError(f"compared: there is no axis {self.compared} with at least two labels")
        if self.leaderboard is not None:
            self._check_leaderboard(self.leaderboard, known.get(self.leaderboard.axis, {}))
        if self.capacity is not None:
            self.capacity.check(known, self.measures)
        return self

    @model_validator(mode="after")
    def _measured(self) -> Self:
        if len(set(self.measures)) < len(self.measures):
            raise ValueError("measures: a measure is named twice")
        if needs_perf_test(self.measures) and self.over != "steady":
            raise ValueError("measures: PerfTest is played without faults only; write over: steady")
        return self

    def _check_leaderboard(self, board: Leaderboard, labels: Collection[str]) -> None:
        if set(board.clusters) != set(labels):
            there_is = f"axis {board.axis!r} has {', '.join(labels)}" if labels else f"there is no axis {board.axis!r}"
            raise ValueError(f"leaderboard: clusters are {', '.join(board.clusters)}, but {there_is}")
        if lacking := [name for name in (board.rate, *board.demands) if name not in self.measures]:
            raise ValueError(f"leaderboard: {lacking[0]} is not among what is measured; add it to measures")
        if board.rate not in RATES:
            raise ValueError(f"leaderboard: rate: {board.rate} is no rate of a load; write {' or '.join(RATES)}")


def label_of(value: Any) -> str:
    """Return the label of a value: a text itself, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)
