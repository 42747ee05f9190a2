"""What a step can wait for, instead of a time. One class and one field of ``When`` each."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal, Protocol, Self

from pydantic import Field, model_validator

from topologies.observer import Observer
from topologies.spec import Spec, Topology


class Condition(Protocol):
    """Something that can become true while a scenario runs."""

    def problem(self, topology: Topology, queues: Collection[str]) -> str | None:
        """What can never be met in this topology and workload; None if it can be."""
        ...

    def holds(self, observer: Observer) -> bool: ...


class DepthOver(Spec):
    """A queue holds more than so many messages, ready and unacknowledged together."""

    queue: str
    messages: Annotated[int, Field(ge=0)]

    def problem(self, topology: Topology, queues: Collection[str]) -> str | None:  # noqa: ARG002 - one form for all
        return None if self.queue in queues else _no_queue(self.queue, queues)

    def holds(self, observer: Observer) -> bool:
        row = observer.queues_now.get(self.queue)
        return row is not None and (row["ready"] or 0) + (row["unacked"] or 0) > self.messages


class NodeIs(Spec):
    """A node is up, paused or down."""

    node: str
    state: Literal["up", "paused", "down"]

    def problem(self, topology: Topology, queues: Collection[str]) -> str | None:  # noqa: ARG002 - one form for all
        names = topology.node_names
        return None if self.node in names else f"node {self.node!r} is not in {topology.name}: {', '.join(names)}"

    def holds(self, observer: Observer) -> bool:
        return observer.states.get(self.node) == self.state


class LeaderOn(Spec):
    """A queue is led by a node of a zone."""

    queue: str
    zone: str

    def problem(self, topology: Topology, queues: Collection[str]) -> str | None:
        if self.zone not in topology.zones:
            return f"zone {self.zone!r} is not in {topology.name}: {', '.join(topology.zones)}"
        return None if self.queue in queues else _no_queue(self.queue, queues)

    def holds(self, observer: Observer) -> bool:
        leader = observer.leader_of(self.queue)
        return leader is not None and observer.topology.zone_of(leader) == self.zone


class When(Spec):
    """Exactly one condition."""

    depth_over: DepthOver | None = None
    node_is: NodeIs | None = None
    leader_on: LeaderOn | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self._given()) != 1:
            raise ValueError(f"give exactly one condition: {', '.join(type(self).model_fields)}")
        return self

    def _given(self) -> list[Condition]:
        return [value for name in type(self).model_fields if (value := getattr(self, name)) is not None]

    @property
    def condition(self) -> Condition:
        return self._given()[0]


def _no_queue(queue: str, queues: Collection[str]) -> str:
    return f"queue {queue!r} is not in the workload: {', '.join(list(queues)[:8])}"
