"""How far an application with one thread has got, by a clock that the tests turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.history.variation import Variation
from rabbitmq_resilience.workload.processing import Processing


def looks(processing: Processing, *seen: tuple[float, int]) -> list[int]:
    """(at_ms, received by then), and how many are done."""
    return [processing.done(received, now_us=round(at_ms * 1000)) for at_ms, received in seen]


def test_one_after_another_at_its_pace() -> None:
    processing = Processing(Variation(20), now_us=0)
    assert looks(processing, (0, 10), (19, 10), (20, 10), (45, 10), (60, 10), (1000, 10)) == [0, 0, 1, 2, 3, 10]


def test_idle_time_is_not_saved_up() -> None:
    processing = Processing(Variation(20), now_us=0)
    assert looks(processing, (0, 1), (500, 1), (1000, 5), (1019, 5), (1020, 5)) == [0, 1, 1, 1, 2]


def test_what_arrives_between_two_looks_begins_at_the_second() -> None:
    processing = Processing(Variation(20), now_us=0)
    assert looks(processing, (0, 1), (100, 4), (119, 4), (120, 4)) == [0, 1, 1, 2]


def test_no_time_at_all() -> None:
    assert looks(Processing(Variation(0), now_us=0), (0, 3), (0, 1000)) == [3, 1000]


def test_longer_than_many_looks() -> None:
    processing = Processing(Variation(5000), now_us=0)
    done = looks(processing, *((at_ms, 3) for at_ms in range(0, 15_000, 10)))
    assert [done.index(n) * 10 for n in (1, 2)] == [5000, 10_000]


def test_slow_for_some_time() -> None:
    processing = Processing(Variation(0, ((100, 1),)), now_us=0)
    assert looks(processing, (10, 5)) == [5]
    processing.vary(1_000_000)
    assert looks(processing, (1000, 50), (1500, 50), (1990, 50), (2000, 50)) == [5, 10, 14, 50]


def test_a_new_channel_begins_again() -> None:
    processing = Processing(Variation(10), now_us=0)
    looks(processing, (0, 50), (100, 50))
    processing.restart()
    assert looks(processing, (105, 20), (115, 20)) == [0, 1]


@given(st.floats(0.1, 100), st.lists(st.tuples(st.integers(0, 1_000_000), st.integers(0, 500)), max_size=50))
def test_never_faster_than_one_thread_and_never_more_than_received(each_ms: float, seen: list[tuple[int, int]]) -> None:
    processing, now_us, received, done = Processing(Variation(each_ms), now_us=0), 0, 0, 0
    for wait_us, more in seen:
        now_us, received = now_us + wait_us, received + more
        before, done = done, processing.done(received, now_us=now_us)
        assert before <= done <= received
        assert done <= now_us / (each_ms * 1000) + 1e-6
