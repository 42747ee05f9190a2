"""The section ``capacity`` of a sweep file: which capacity is wanted, and which model predicts it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.extensions.sweeps.prices import RATES, Label
from rabbitmq_resilience.model.base import Spec

#: The measure to which the model is fitted.
OF = "messages_per_core_s"

Positive = Annotated[float, Field(gt=0, lt=1e15)]
#: {axis: number}
At = Mapping[Label, Positive]


class CapacityRequest(Spec):
    """The capacity that is wanted: ``per_s`` messages a second on nodes of ``cores_a_node`` cores.

    ``at``: {axis: number} of each other axis of the model."""

    per_s: Positive
    cores_a_node: Positive
    at: At = Field(default_factory=dict)


class KnownCapacity(Spec):
    """What others measured: ``per_s`` messages a second on ``cores`` cores, ``at`` numbers of all axes of the model."""

    what: Annotated[str, Field(min_length=1, max_length=120)]
    at: At
    per_s: Positive
    cores: Positive


class Capacity(Spec):
    """Compute what a load needs, by a model of this sweep's cells.

    The model is fitted to ``messages_per_core_s``. ``by``: the axes on which that depends, by powers. All their labels
    are numbers above 0, and ``nodes`` is one of these axes. ``queues``: the axis with the number of queues. If it is
    in ``by``, ``rate`` must be measured too: from the rate of one queue follows how many queues are enough.
    ``left_out``: labels that are predicted from all others, each in turn, to check the model. ``beside``: results of
    others, which are compared with the model."""

    by: Annotated[tuple[Label, ...], Field(min_length=1, max_length=4)]
    nodes: Label = "nodes"
    queues: Label | None = "queues"
    rate: str = "confirmed_per_s"
    wanted: CapacityRequest
    left_out: Mapping[Label, tuple[Label, ...]] = Field(default_factory=dict)
    beside: tuple[KnownCapacity, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.nodes not in self.by:
            raise ValueError(
                f"by: the number of nodes must be among the axes: add the axis {self.nodes!r}, or name it (nodes)"
            )
        self._check_at("wanted.at", self.wanted.at, set(self.by) - {self.nodes})
        for known in self.beside:
            self._check_at(f"beside: {known.what}: at", known.at, set(self.by))
        return self

    @staticmethod
    def _check_at(field: str, at: At, needed: Collection[str]) -> None:
        if set(at) != set(needed):
            raise ValueError(f"{field}: states {', '.join(sorted(at)) or 'nothing'}; write {', '.join(sorted(needed))}")

    def check(self, axes: Mapping[str, Collection[str]], measures: Collection[str]) -> None:
        """Raise ValueError if the sweep, with ``axes`` {name: labels}, lacks what the model needs."""
        if set(self.by) != set(axes):
            raise ValueError(
                f"capacity: by: names {', '.join(self.by)}, but the axes are {', '.join(axes)}; name all of them"
            )
        for axis, labels in axes.items():
            if wrong := [label for label in labels if number_of(label) is None]:
                raise ValueError(f"capacity: axis {axis}: {wrong[0]!r} is no number above 0; a model needs numbers")
        for axis, labels in self.left_out.items():
            if unknown := [label for label in labels if label not in axes.get(axis, ())]:
                raise ValueError(f"capacity: left_out: there is no {axis}: {unknown[0]}")
        for name in [OF, *([self.rate] if self.queues in self.by else [])]:
            if name not in measures:
                raise ValueError(f"capacity: {name} is not among what is measured; add it to measures")
        if self.rate not in RATES:
            raise ValueError(f"capacity: rate: {self.rate} is no rate of a load; write {' or '.join(RATES)}")


def number_of(label: str) -> float | None:
    """Return the label as a number; None if it is no number above 0."""
    try:
        found = float(label)
    except ValueError:
        return None
    return found if 0 < found < 1e15 else None
