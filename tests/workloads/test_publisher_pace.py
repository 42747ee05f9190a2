import itertools
import math

from hypothesis import assume, given
from hypothesis import strategies as st

from rabbitmq_resilience.workload.pace import BURST_S, TokenBucket


def us(at_s: float) -> int:
    return round(at_s * 1e6)


def test_no_rate_is_no_limit_and_all_is_due_when_it_is_sent() -> None:
    assert TokenBucket(None, now_us=0).take(1000, now_us=7) == [7] * 1000


def test_the_rate_is_kept_smoothly() -> None:
    pace = TokenBucket(250, now_us=0)
    taken = [len(pace.take(100, now_us=us(i / 100))) for i in range(1, 1001)]
    assert sum(taken) in range(2499, 2501)
    assert set(taken) == {2, 3}


def test_a_rate_below_one_a_tick() -> None:
    pace = TokenBucket(0.5, now_us=0)
    assert sum(len(pace.take(100, now_us=us(i / 100))) for i in range(1, 1001)) == 5


@given(st.floats(1, 10_000), st.lists(st.tuples(st.floats(0.001, 10), st.integers(0, 3000)), min_size=1, max_size=50))
def test_each_message_is_due_when_a_bucket_that_is_filled_token_by_token_gets_its_token(
    rate_per_s: float, looks: list[tuple[float, int]]
) -> None:
    pace, now_us, come = TokenBucket(rate_per_s, now_us=0), 0, 0
    bucket: list[float] = []
    for wait_s, wanted in looks:
        now_us += us(wait_s)
        turns = now_us * rate_per_s / 1e6
        assume(abs(turns - round(turns)) > 1e-6)  # what comes at this very moment may be seen or not
        while come + 1 < turns:
            come += 1
            if len(bucket) < max(1, math.floor(rate_per_s * BURST_S)):
                bucket.append(come * 1e6 / rate_per_s)
        due_us = pace.take(wanted, now_us=now_us)
        assert len(due_us) == min(wanted, len(bucket))
        assert all(abs(due - token) < 2 for due, token in zip(due_us, bucket, strict=False))
        assert all(due <= now_us for due in due_us)
        del bucket[: len(due_us)]


def test_what_is_not_wanted_is_not_taken() -> None:
    pace = TokenBucket(100, now_us=0)
    assert pace.take(3, now_us=us(0.1)) == [10_000, 20_000, 30_000]
    assert pace.take(100, now_us=us(0.1)) == [40_000, 50_000, 60_000, 70_000, 80_000, 90_000, 100_000]


def test_what_a_full_bucket_does_not_take_is_never_due() -> None:
    """After a stall of 10 s, 25 messages are made up for: those that were due first in it."""
    pace = TokenBucket(100, now_us=0)
    assert pace.take(1000, now_us=us(10)) == [10_000 * i for i in range(1, 26)]
    assert pace.take(1000, now_us=us(10.02)) == [10_010_000, 10_020_000]


def test_a_pause_sends_nothing_and_nothing_is_made_up_for_after_it() -> None:
    pace = TokenBucket(100, now_us=0)
    pace.change(0, now_us=us(1))
    assert [pace.take(1000, now_us=us(1 + i / 10)) for i in range(100)] == [[]] * 100
    pace.change(100, now_us=us(11))
    assert (pace.take(1000, now_us=us(11)), len(pace.take(1000, now_us=us(11.25)))) == ([], 25)


def test_a_limit_begins_and_ends_at_once() -> None:
    pace = TokenBucket(None, now_us=0)
    pace.change(100, now_us=us(5))
    assert (pace.take(1000, now_us=us(5)), len(pace.take(1000, now_us=us(5.25)))) == ([], 25)
    pace.change(None, now_us=us(6))
    assert pace.take(3, now_us=us(6)) == [us(6)] * 3


@given(st.integers(1, 200), st.floats(0.1, 50))
def test_publishers_that_begin_together_are_due_in_turn(publishers: int, rate_per_s: float) -> None:
    """However many they are, and when they take another rate together: messages of all come at equal distances."""
    paces = [TokenBucket(rate_per_s, now_us=0, ahead=index / publishers) for index in range(publishers)]
    for begun_s, rate in ((0.0, rate_per_s), (1000.0, rate_per_s * 2)):
        for pace in paces:
            pace.change(rate, now_us=us(begun_s))
        every_us = 1e6 / rate
        due_us = sorted(due for pace in paces for due in pace.take(1, now_us=us(begun_s) + math.ceil(every_us) + 1))
        assert len(due_us) == publishers
        assert due_us[0] - us(begun_s) <= every_us / publishers + 1
        distances = [later - sooner for sooner, later in itertools.pairwise(due_us)]
        assert all(abs(distance - every_us / publishers) < 2 for distance in distances)
