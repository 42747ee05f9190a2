"""What is told of a process that was taken, against what became of it: every combination of what there may be after."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.nemesis import processes
from rabbitmq_resilience.nemesis.processes import ProcessInjection
from rabbitmq_resilience.sut.node_protocol import ProcessState

BEFORE, OTHER = "process 7", "process 8"


@dataclass
class Place:
    """Of one node: its process, if any, and whether that is suspended."""

    restarts_brokers: bool
    life_now: str | None = BEFORE
    suspended: bool = False
    status: int | None = None
    given: int = 0

    def process(self, node: str) -> ProcessState:  # noqa: ARG002 - there is one
        if self.life_now is None:
            return "gone"
        return "suspended" if self.suspended else "running"

    def life(self, node: str) -> str | None:  # noqa: ARG002 - there is one
        return self.life_now

    def exit_status(self, node: str) -> int | None:  # noqa: ARG002 - there is one
        return self.status

    def give(self, node: str) -> None:  # noqa: ARG002 - there is one
        self.given += 1


def injected(place: Place, taken: ProcessState) -> ProcessInjection:
    context: Any = SimpleNamespace(cluster=place, refuse_if_taken=lambda _: None)
    injection = ProcessInjection(context, ("a1",), lambda _: None, place.give, taken)
    injection.inject()
    return injection


#: Whether brokers return by themselves; then of the process: its life, whether it is suspended, and how one ended.
World = tuple[bool, str | None, bool, int | None]

WORLDS: list[World] = [
    (returning, life, suspended, status)
    for returning, life, suspended, status in itertools.product(
        (False, True), (None, BEFORE, OTHER), (False, True), (None, -9, 137, 0, 1)
    )
    if life is not None or not suspended
]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("taken", ["gone", "suspended"])
def test_a_proof_says_what_became_of_the_very_process(taken: ProcessState, world: World) -> None:
    returning, life, suspended, status = world
    place = Place(returning)
    injection = injected(place, taken)
    place.life_now, place.suspended, place.status = life, suspended, status
    killed = status in (None, -9, 137)
    if taken == "suspended":
        truth = life == BEFORE and suspended
    elif returning:
        truth = life == OTHER or (life is None and killed)
    else:
        truth = life is None and killed
    assert injection.prove(timeout_s=0).proven == truth


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("taken", ["gone", "suspended"])
def test_healing_is_proven_by_another_process_or_the_same(
    taken: ProcessState, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    returning, life, suspended, status = world
    monkeypatch.setattr(processes, "BACK_WITHIN_S", 0)
    place = Place(returning)
    injection = injected(place, taken)
    place.life_now, place.suspended, place.status = life, suspended, status
    wanted = OTHER if taken == "gone" else BEFORE
    assert injection.prove_healed().proven == (life == wanted and not suspended)


@pytest.mark.parametrize("returning", [False, True])
def test_who_came_back_by_itself_is_given_back_where_that_is_how_it_is(returning: bool) -> None:
    """It is held for taken until then, and no other node may be."""
    place = Place(returning)
    injection = injected(place, "gone")
    place.life_now = OTHER
    injection.heal()
    assert place.given == (1 if returning else 0)
    place.life_now = None
    injection.heal()
    assert place.given == (2 if returning else 1)
