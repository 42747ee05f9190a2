"""Stalls of queues that get a message every few seconds, against a slow way that looks at each message."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import Row, cluster, history, load, node_states, phases, publish, queues, us

#: The span in which stalls are looked for, in seconds.
BEGIN_S, END_S = 0.0, 90.0
#: How exactly moments are known: ticks of 0.02 s.
EXACT_S = 0.05


def rows_of(every_s: float, answers: list[float | None]) -> list[Row]:
    """Return messages that are due every so many seconds, each confirmed after some seconds or given up after 10."""
    rows = []
    for n, answer_s in enumerate(answers):
        at_s = 0.5 + n * every_s
        outcome = Outcome.CONFIRMED if answer_s is not None else Outcome.UNKNOWN
        answered_s = at_s + (10.0 if answer_s is None else answer_s)
        if answered_s < END_S:
            rows.append(publish(n, at_s, outcome) | {"outcome_us": us(answered_s)})
    return rows


def slowly(rows: list[Row], every_s: float) -> float:
    """Return the longest stall in seconds: until a confirm, or the end, from the last one or from when the next message
    was due, if none was under way and they come over a second apart."""

    def since_s(moment_us: int) -> float:
        return (moment_us - us(0)) / 1e6

    messages = [(since_s(row["due_us"]), since_s(row["outcome_us"])) for row in rows]
    confirms = sorted(since_s(row["outcome_us"]) for row in rows if row["outcome"] == Outcome.CONFIRMED)
    stalls = []
    for before, after in itertools.pairwise([BEGIN_S, *confirms, END_S]):
        begins = before
        if every_s > 1 and not any(due < before - 1e-9 and answered > before + 1e-9 for due, answered in messages):
            next_due = min((due for due, _ in messages if due > before), default=float("inf"))
            begins = min(next_due, before + every_s, after)
        stalls.append(after - begins)
    return max(stalls)


@given(
    st.sampled_from([0.7, 1.5, 3.0, 7.0, 20.0, 40.0]),
    st.lists(st.sampled_from([0.1, 0.1, 0.1, 2.0, 9.0, 25.0, None]), min_size=1, max_size=60),
)
def test_each_message_by_itself_says_the_same(every_s: float, answers: list[float | None]) -> None:
    rows = rows_of(every_s, answers)
    if not rows:
        return
    events = [cluster(), queues("q1"), phases(), load(10, 1 / every_s), node_states()]
    finding = Availability(stall_s_max=15).check(history(rows, (), events))
    assert finding.numbers["stall_s"] == pytest.approx(slowly(rows, every_s), abs=EXACT_S)


def test_without_a_limit_a_queue_is_tried_all_the_time() -> None:
    rows = [publish(n, 0.5 + 25 * n) for n in range(4)]
    events = [cluster(), queues("q1"), phases(), load(10, None), node_states()]
    assert Availability(stall_s_max=15).check(history(rows, (), events)).verdict is Verdict.INVALID


@pytest.mark.parametrize(("often_until_s", "verdict"), [(89, Verdict.VALID), (45, Verdict.INVALID)])
def test_a_queue_that_gets_few_of_many_messages_is_tried_seldom(often_until_s: float, verdict: Verdict) -> None:
    """q1 gets 4/s, q2 one in 25 s; where half of the load is missing, nobody knows whether q2 was to get more."""
    often = [publish(n, 0.5 + n / 4) for n in range(int(4 * often_until_s))]
    seldom = [publish(n, 0.5 + 25 * n, publisher=1, queue=1) for n in range(4)]
    events = [cluster(), queues("q1", "q2"), phases(), load(10, 4), node_states()]
    assert Availability(stall_s_max=15).check(history([*often, *seldom], (), events)).verdict is verdict


@pytest.mark.parametrize(("slow_at_s", "verdict"), [(10.0, Verdict.INVALID), (40.0, Verdict.VALID)])
def test_only_the_target_of_its_own_time_makes_a_queue_seldom_used(slow_at_s: float, verdict: Verdict) -> None:
    """Nothing is confirmed for 20 s from 40 s on. The target is one message in 10 s for 20 s, then or before."""
    steps = load(10, 100, (100, slow_at_s - 10), (0.1, 20), (100, 60))
    times = [n / 100 for n in range(9000)]
    slow = [at_s for at_s in times if not slow_at_s <= at_s < slow_at_s + 20]
    rows = [publish(n, at_s) for n, at_s in enumerate(at_s for at_s in slow if not 40 <= at_s < 60)]
    events = [cluster(), queues("q1"), phases(), node_states(), steps]
    assert Availability(stall_s_max=15).check(history(rows, (), events)).verdict is verdict
