"""Whether a publisher was late by itself or because the cluster let it wait: publishers that are acted out, of which it
is known when they slept."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.waits import LAGS_US, confirm_waits
from rabbitmq_resilience.workload.pace import TokenBucket
from tests.invariants.literal import Row, cluster, event, history, phases, publish, queues, us

_STEP_US = 2_000
_FIRST_US = us(1)


@dataclass(frozen=True)
class Acted:
    """``sleeps_ms`` are begin and length, from the first moment on; ``confirms_ms`` is how long each confirm takes, one
    after the other, again and again."""

    rate_per_s: int
    in_flight: int
    confirms_ms: list[int]
    sleeps_ms: list[tuple[int, int]]

    def asleep(self, at_us: int) -> bool:
        return any(begin_us <= at_us < end_us for begin_us, end_us in self.sleeps_us)

    @property
    def sleeps_us(self) -> list[tuple[int, int]]:
        return [(_FIRST_US + 1000 * begin, _FIRST_US + 1000 * (begin + length)) for begin, length in self.sleeps_ms]

    def rows(self) -> list[Row]:
        """What it would record of 4 s. Asleep it neither sends nor looks at what came."""
        pace = TokenBucket(self.rate_per_s, now_us=_FIRST_US)
        rows: list[Row] = []
        coming: deque[tuple[int, Row]] = deque()
        for at_us in range(_FIRST_US, _FIRST_US + 4_000_000, _STEP_US):
            if self.asleep(at_us):
                continue
            for due_us in pace.take(self.in_flight - len(coming), now_us=at_us):
                took_us = 1000 * self.confirms_ms[len(rows) % len(self.confirms_ms)]
                rows.append(publish(len(rows)) | {"due_us": due_us, "sent_us": at_us})
                coming.append((max(at_us + took_us, coming[-1][0] if coming else 0), rows[-1]))
            while coming and coming[0][0] <= at_us:
                coming.popleft()[1]["outcome_us"] = at_us  # and there is a moment before it uses the room
        for comes_us, row in coming:
            row["outcome_us"] = comes_us
        return rows

    def first_after(self, rows: list[Row], begin_us: int, end_us: int) -> list[Row]:
        """As many after a sleep as there was room for when it began."""
        under_way = sum(row["sent_us"] < begin_us < row["outcome_us"] for row in rows)
        return [row for row in rows if row["sent_us"] >= end_us][: self.in_flight - under_way]

    def lagged(self, rows: list[Row]) -> set[int]:
        """When those were due that lagged. What was never sent has the due time of no row."""
        told = {"rate_per_s": self.rate_per_s, "variable_rate": [], "publishers": 1, "in_flight": self.in_flight}
        connected = event(0.5, "worker", worker="publisher-0", event="connected", node="a1", detail="", life=0)
        load = event(0.5, "load", begins_us=us(0.5), **told)
        waits = confirm_waits(history(rows, (), [cluster(), queues("q1"), phases(), connected, load]))
        return set(waits.due_us[waits.lagged & ~waits.omitted].tolist())


@st.composite
def acted(draw: st.DrawFn, *, sleeps: bool = True) -> Acted:
    at_ms, told = 0, []
    for _ in range(draw(st.integers(1, 3)) if sleeps else 0):
        at_ms += draw(st.integers(100, 900))
        told.append((at_ms, draw(st.sampled_from([20, 150, 260, 600]))))
        at_ms += told[-1][1]
    confirms_ms = draw(st.lists(st.integers(2, 60) | st.integers(100, 700), min_size=1, max_size=6))
    return Acted(draw(st.sampled_from([10, 100, 250])), draw(st.sampled_from([1, 2, 10, 60])), confirms_ms, told)


@given(acted(sleeps=False))
def test_who_never_sleeps_never_lags_however_slow_the_cluster_is(drawn: Acted) -> None:
    assert drawn.lagged(drawn.rows()) == set()


@given(acted())
def test_what_lags_was_due_in_a_long_sleep_or_could_have_gone_out_in_it(drawn: Acted) -> None:
    rows = drawn.rows()
    explained: set[int] = set()
    for begin_us, end_us in drawn.sleeps_us:
        if end_us - begin_us >= LAGS_US:
            explained |= {row["due_us"] for row in rows if begin_us - _STEP_US <= row["due_us"] <= end_us + _STEP_US}
            explained |= {row["due_us"] for row in drawn.first_after(rows, begin_us, end_us)}
    assert drawn.lagged(rows) <= explained


@given(acted())
def test_what_could_have_gone_out_in_a_long_sleep_lags(drawn: Acted) -> None:
    rows = drawn.rows()
    lagged = drawn.lagged(rows)
    for begin_us, end_us in drawn.sleeps_us:
        if end_us - begin_us > LAGS_US + _STEP_US:
            first = drawn.first_after(rows, begin_us, end_us)
            assert {row["due_us"] for row in first if row["due_us"] < end_us - LAGS_US - _STEP_US} <= lagged


def test_what_waits_behind_what_lagged_lags_too() -> None:
    """One in flight, ten a second: what was due in a sleep goes out one after the other when it ends."""
    one = Acted(10, 1, [2], [(1050, 600)])
    rows = one.rows()
    slept = [row["due_us"] for row in rows if us(2.05) <= row["due_us"] < us(2.65)]
    assert len(slept) >= 2
    assert all(a["sent_us"] < b["sent_us"] for a, b in pairwise(rows))
    assert one.lagged(rows) == {due_us for due_us in slept if due_us < us(2.65) - LAGS_US}
