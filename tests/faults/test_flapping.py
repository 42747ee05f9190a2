"""What proves that a link came and went, by hand: five periods in 3 s, each of which has a cut."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.nemesis import flapping
from rabbitmq_resilience.nemesis.fault import Proof
from tests.messages import Messages


@dataclass
class World:
    """A cluster, its clock and its threads: what runs in a thread runs at once, and to wait is to move the clock on.

    The first ``slow_cuts`` cuts take so long that each misses the next period's. Nothing goes on after ``ended_s``.
    """

    ended_s: float
    slow_cuts: int
    starts_after_s: float
    seen: bool
    now_s: float = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, timeout_s: float) -> bool:
        self.now_s = min(self.now_s + timeout_s, max(self.now_s, self.ended_s))
        return self.now_s >= self.ended_s

    def thread(self, *, target: Callable[[], None], name: str) -> Any:  # noqa: ARG002 - as a thread has one
        def start() -> None:
            self.now_s += self.starts_after_s
            target()

        return SimpleNamespace(start=start, join=lambda: None)

    def cut(self, _: object) -> None:
        if self.slow_cuts:
            self.slow_cuts -= 1
            self.now_s += 0.8

    def silence(self, *_: object) -> Any:
        proof = Proof(self.seen, "answered all the time")
        return SimpleNamespace(begin=lambda: None, end=lambda: None, prove=lambda: proof)

    @property
    def context(self) -> Any:
        cuts = SimpleNamespace(add=lambda links, cut: cut(links), remove=lambda *_: None)
        links = SimpleNamespace(cut=self.cut, restore=lambda _: None)
        return SimpleNamespace(cuts=cuts, cluster=SimpleNamespace(links=links))


def proven(*, missed: int = 0, ended_s: float, starts_after_s: float = 0.0, seen: bool = True) -> Proof:
    """What is proven in the end where so many of the cuts are missed."""
    world = World(ended_s, missed, starts_after_s, seen)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(flapping, "time", world)
        patched.setattr(flapping, "threading", SimpleNamespace(Thread=world.thread))
        patched.setattr(flapping, "Silence", world.silence)
        patched.setattr(flapping, "unproxied", lambda *_: None)
        patched.setattr(threading.Event, "wait", lambda _, timeout_s: world.wait(timeout_s))
        flapped = flapping.FlappingInjection(world.context, frozenset(), period_s=0.6, for_s=3)
        flapped.inject()
        late = flapped.prove(timeout_s=1)
        assert callable(late)
        world.now_s = ended_s
        flapped.heal()
        told: Proof = late()
    return told


@pytest.mark.parametrize("ended_s", [3.0, 4.9, 60.0])
def test_no_more_is_demanded_where_it_is_healed_late(ended_s: float, message: Messages) -> None:
    assert proven(missed=1, ended_s=ended_s).proven
    told = proven(missed=2, ended_s=ended_s)
    assert not told.proven
    message(told.detail)


def test_less_is_demanded_where_it_is_ended_early() -> None:
    assert proven(missed=1, ended_s=1.0).proven


def test_what_no_one_watched_or_no_one_felt_is_not_proven(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    assert not proven(ended_s=3.0, seen=False).proven
    monkeypatch.setattr(flapping, "WATCHED_CUTS", 1)
    assert proven(ended_s=3.0).proven
    unwatched = proven(ended_s=3.0, starts_after_s=0.2)
    assert not unwatched.proven, "only the first cut would be watched, and it came too late"
    message(unwatched.detail)
