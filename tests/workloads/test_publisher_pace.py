from hypothesis import given
from hypothesis import strategies as st

from workloads.publisher import BURST_S, Pace


def test_no_rate_is_no_limit() -> None:
    assert Pace(None, now_s=0).take(1000, now_s=0) == 1000


def test_the_rate_is_kept_smoothly() -> None:
    pace = Pace(250, now_s=0)
    taken = [pace.take(100, now_s=i / 100) for i in range(1, 1001)]
    assert sum(taken) in range(2499, 2501)
    assert set(taken) == {2, 3}


def test_a_rate_below_one_a_tick() -> None:
    pace = Pace(0.5, now_s=0)
    assert sum(pace.take(100, now_s=i / 100) for i in range(1, 1001)) == 5


@given(st.floats(1, 10_000), st.lists(st.floats(0.001, 10), min_size=1, max_size=50))
def test_never_more_than_the_rate_and_one_burst(rate_per_s: float, waits_s: list[float]) -> None:
    pace, now_s, taken = Pace(rate_per_s, now_s=0), 0.0, 0
    for wait_s in waits_s:
        now_s += wait_s
        burst = pace.take(1_000_000, now_s=now_s)
        assert burst <= max(1, rate_per_s * BURST_S)
        taken += burst
        assert taken <= rate_per_s * now_s + 1


def test_what_is_not_wanted_is_not_taken() -> None:
    pace = Pace(100, now_s=0)
    assert pace.take(3, now_s=0.1) == 3
    assert pace.take(100, now_s=0.1) == 7


def test_a_pause_sends_nothing_and_nothing_is_made_up_for_after_it() -> None:
    pace = Pace(100, now_s=0)
    pace.change(0, now_s=1)
    assert [pace.take(1000, now_s=1 + i / 10) for i in range(100)] == [0] * 100
    pace.change(100, now_s=11)
    assert (pace.take(1000, now_s=11), pace.take(1000, now_s=11.25)) == (0, 25)


def test_a_limit_begins_and_ends_at_once() -> None:
    pace = Pace(None, now_s=0)
    pace.change(100, now_s=5)
    assert (pace.take(1000, now_s=5), pace.take(1000, now_s=5.25)) == (0, 25)
    pace.change(None, now_s=6)
    assert pace.take(1000, now_s=6) == 1000
