"""An I/O loop is woken at the moments that were asked for, by each of the clocks."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import statistics
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika.adapters.select_connection import IOLoop

from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.workload import timer as module
from rabbitmq_resilience.workload.timer import Timer

pytestmark = pytest.mark.core


@pytest.fixture(params=["the kernel's clock", "the loop's clock"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[IOLoop]:
    if request.param == "the loop's clock":
        monkeypatch.setitem(globals(), "Timer", timer_without_timerfd())
    made = IOLoop()
    yield made
    made.close()


def timer_without_timerfd() -> type[Timer]:
    """Return the timer of a system whose C library has no timerfd_create."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace())
        spec.loader.exec_module(loaded)
    made: type[Timer] = loaded.Timer
    return made


def rung(loop: IOLoop, after_us: list[int]) -> list[tuple[int, int]]:
    """Which were called, in their order, and how long after their moment."""
    timer, began_us, called = Timer(loop), now_us(), list[tuple[int, int]]()

    def call(number: int) -> None:
        called.append((number, now_us() - began_us - after_us[number]))
        if len(called) == len(after_us):
            loop.stop()

    for number, us in enumerate(after_us):
        timer.call_at(began_us + us, partial(call, number))
    loop.start()
    return called


def test_none_is_early_and_they_come_in_their_order(loop: IOLoop) -> None:
    called = rung(loop, [3_000, 1_000, 20_000, 1_500, -5, 1_000])
    assert [number for number, _ in called] == [4, 1, 5, 3, 0, 2]
    assert all(late_us >= 0 for _, late_us in called)


@given(st.lists(st.integers(-10, 3_000), min_size=1, max_size=50))
def test_each_is_called_once(after_us: list[int]) -> None:
    loop = IOLoop()
    called = [number for number, _ in rung(loop, after_us)]
    loop.close()
    assert sorted(called) == list(range(len(after_us)))
    moments = [after_us[number] for number in called]
    assert moments == sorted(moments)


def test_who_is_called_may_ask_to_be_called_again(loop: IOLoop) -> None:
    timer, called = Timer(loop), list[int]()

    def again() -> None:
        called.append(now_us())
        if len(called) == 40:
            loop.stop()
        else:
            timer.call_at(called[-1] + 10, again)

    timer.call_at(now_us(), again)
    loop.start()
    apart = [later - earlier for earlier, later in itertools.pairwise(called)]
    # A machine that is busy may hold up single ones between the ring and this record of it.
    assert statistics.median(apart) >= module.APART_US / 2, "others have their turn"


def test_an_earlier_moment_does_not_put_off_a_later_one(loop: IOLoop) -> None:
    timer, called = Timer(loop), list[str]()

    def later() -> None:
        called.append("later")
        loop.stop()

    began_us = now_us()
    timer.call_at(began_us + 4_000, later)
    timer.call_at(began_us + 1_000, lambda: called.append("earlier"))
    loop.start()
    assert called == ["earlier", "later"]
