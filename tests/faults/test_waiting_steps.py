"""A step that waits for a condition is shown to people if that takes a while, once."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.nemesis import nemesis
from rabbitmq_resilience.nemesis.fault import FaultContext
from rabbitmq_resilience.nemesis.targets import TargetError


@dataclass
class Condition:
    """A condition that does not hold for as many looks as are stated."""

    looks: int

    def holds(self, _: object) -> bool:
        self.looks -= 1
        return self.looks < 0

    def __str__(self) -> str:
        return "{depth_over: {queue: q1, messages: 9}}"


@dataclass
class Waiting:
    """A step that is skipped once its condition held, as its target is missing."""

    when: Condition
    at_s: float | None = None
    for_s: float = 0.0
    fault: str = "kill"

    def prepare(self, *_: object, **__: object) -> None:
        raise TargetError("the condition held")


def shown(looks: int) -> tuple[list[str], list[str]]:
    """Play a step whose condition does not hold for that many looks; return what was shown, and the step's details."""
    said: list[str] = []
    details: list[str] = []
    cluster: Any = SimpleNamespace(topology=None)
    cluster.lasting = lambda _: cluster
    unused: Any = SimpleNamespace(leader_of=None, followers_of=None)
    steps: Any = (Waiting(Condition(looks)),)
    context = FaultContext(cluster, unused, unused)
    played = nemesis.Nemesis(steps, context, lambda _, **e: details.append(e["detail"]), 1, 60, said.append)
    played.play(lambda: None)
    return said, details


@pytest.fixture(autouse=True)
def looks_without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nemesis, "LOOK_EVERY_S", 0.0)


def test_a_long_wait_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nemesis, "WAIT_SHOWN_AFTER_S", 0.0)
    said, details = shown(looks=3)
    assert said == ["step 0 (kill) waits for its condition: {depth_over: {queue: q1, messages: 9}}"]
    assert details == ["the condition held"]


def test_a_short_wait_is_not_shown() -> None:
    assert shown(looks=3) == ([], ["the condition held"])
