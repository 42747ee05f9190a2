"""The conditions that a step can wait for instead of a time. Each is one class and one field of ``When``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, Self

import yaml
from pydantic import Field, model_validator

from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.management import MIRROR_CRITICAL, QUORUM_CRITICAL, ApiError, ApiUnreachable
from rabbitmq_resilience.sut.node_protocol import Endpoints
from rabbitmq_resilience.sut.observer import Observer


class Condition(Protocol):
    """A statement that can become true while a scenario runs."""

    def problem(self, setting: Setting) -> str | None:
        """Return why the condition can never hold in this topology and workload, or None if it can."""
        ...

    def holds(self, scene: Scene) -> bool: ...


@dataclass(frozen=True)
class Setting:
    """What is known before the run starts. ``queues`` is None if they are not known. ``earlier`` is the number of steps
    before the one that waits."""

    topology: Topology
    queues: Collection[str] | None
    earlier: int


@dataclass(frozen=True)
class Scene:
    """What a condition may look at. ``since_healed_s`` returns for how long a step has been healed, or None."""

    observer: Observer
    cluster: Endpoints
    since_healed_s: Callable[[int], float | None]


class DepthOver(Spec):
    """A queue holds more than this number of messages, ready and unacknowledged together."""

    queue: str
    messages: Annotated[int, Field(ge=0)]

    def problem(self, setting: Setting) -> str | None:
        return _no_queue(self.queue, setting.queues)

    def holds(self, scene: Scene) -> bool:
        row = scene.observer.queues_now.get(self.queue)
        return row is not None and (row["ready"] or 0) + (row["unacked"] or 0) > self.messages


class NodeIs(Spec):
    """A node is up, paused or down."""

    node: str
    state: Literal["up", "paused", "down"]

    def problem(self, setting: Setting) -> str | None:
        names = setting.topology.node_names
        return (
            None if self.node in names else f"node {self.node!r} is not in {setting.topology.name}: {', '.join(names)}"
        )

    def holds(self, scene: Scene) -> bool:
        return scene.observer.states.get(self.node) == self.state


class LeaderOn(Spec):
    """A queue is led by a node of a zone."""

    queue: str
    zone: str

    def problem(self, setting: Setting) -> str | None:
        if self.zone not in setting.topology.zones:
            return f"zone {self.zone!r} is not in {setting.topology.name}: {', '.join(setting.topology.zones)}"
        return _no_queue(self.queue, setting.queues)

    def holds(self, scene: Scene) -> bool:
        leader = scene.observer.leader_of(self.queue)
        return leader is not None and scene.observer.topology.zone_of(leader) == self.zone


class AfterStep(Spec):
    """An earlier step, counted from 0, was proven healed at least ``wait_s`` seconds ago."""

    step: Annotated[int, Field(ge=0)]
    wait_s: Annotated[float, Field(ge=0)] = 0

    def problem(self, setting: Setting) -> str | None:
        if self.step < setting.earlier:
            return None
        there = f"there are steps 0 to {setting.earlier - 1}" if setting.earlier else "there is none"
        return f"step {self.step} does not come before this one; before it {there}"

    def holds(self, scene: Scene) -> bool:
        since_s = scene.since_healed_s(self.step)
        return since_s is not None and since_s >= self.wait_s


class NotCritical(Spec):
    """No queue would lose its majority, or its only synchronised mirror, without the node. Operators wait for that
    before they stop a node (``check_if_node_is_quorum_critical``, ``check_if_node_is_mirror_sync_critical``)."""

    node: str

    def problem(self, setting: Setting) -> str | None:
        return NodeIs(node=self.node, state="up").problem(setting)

    def holds(self, scene: Scene) -> bool:
        api = scene.cluster.api(self.node)
        try:
            return not any(map(api.is_critical, (QUORUM_CRITICAL, MIRROR_CRITICAL)))
        except (ApiError, ApiUnreachable):
            return False


class When(Spec):
    """One condition or several, which must hold at the same time. The cheapest ones are looked at first."""

    after_step: AfterStep | None = None
    depth_over: DepthOver | None = None
    node_is: NodeIs | None = None
    leader_on: LeaderOn | None = None
    not_critical: NotCritical | None = None

    @model_validator(mode="after")
    def _any(self) -> Self:
        if not self._given():
            raise ValueError(f"give a condition: {', '.join(type(self).model_fields)}")
        return self

    def _given(self) -> list[Condition]:
        return [value for name in type(self).model_fields if (value := getattr(self, name)) is not None]

    def problem(self, setting: Setting) -> str | None:
        """Return the first reason why the conditions can never hold, or None."""
        return next((text for condition in self._given() if (text := condition.problem(setting))), None)

    def holds(self, scene: Scene) -> bool:
        return all(condition.holds(scene) for condition in self._given())

    def __str__(self) -> str:
        """Return the condition as a fault file has it."""
        plain = self.model_dump(mode="json", exclude_none=True)
        return str(yaml.safe_dump(plain, default_flow_style=True, width=1000)).strip()


def _no_queue(queue: str, queues: Collection[str] | None) -> str | None:
    if queues is None or queue in queues:
        return None
    return f"queue {queue!r} is not in the workload: {', '.join(list(queues)[:8])}"
