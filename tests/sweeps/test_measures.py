"""What is measured of a run, from histories that are written by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.extensions.sweeps.measures import MEASURES, disturbed_by
from rabbitmq_resilience.extensions.sweeps.seen import JudgedRun
from rabbitmq_resilience.extensions.sweeps.sweep_player import status_of
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import Row, cluster, deliver, event, history, node_states, phases, publish, queues, us
from tests.messages import Messages
from tests.sweeps.test_compare_command import PLAYED

#: The steady phase is from 0 to 10 s, and publishing ends at 30 s.
PHASES = phases(steady=0, chaos=10, recovery=20, drain=30, end=40)
LOAD = {"rate_per_s": 10, "variable_rate": [], "publishers": 1, "in_flight": 100, "begins_us": 0}


def seen(
    publishes: Iterable[Row], deliveries: Iterable[Row] = (), events: Iterable[Any] = (), *, awaited: bool = True
) -> JudgedRun:
    whole = [cluster(), queues("q1", "q2"), PHASES, node_states(end_s=40), event(0, "load", **LOAD), *events]
    return JudgedRun(history(publishes, deliveries, whole), "steady", PLAYED, {}, (), awaited)


def measured(name: str, told: JudgedRun) -> float | None:
    return MEASURES[name].of(told)


EVERY = [publish(number, number / 10) for number in range(300)]


def test_a_message_is_received_once_however_often_it_is_delivered() -> None:
    once = [deliver(number, number / 10 + 0.01) for number in range(300)]
    again = [deliver(number, number / 10 + 0.02, again=True) for number in range(300)]
    corrupted = [deliver(number, number / 10 + 0.01, intact=False) for number in range(300)]
    assert measured("received_per_s", seen(EVERY, once)) == pytest.approx(10, rel=0.02)
    assert measured("received_per_s", seen(EVERY, [*once, *again])) == pytest.approx(10, rel=0.02)
    assert measured("received_per_s", seen(EVERY, corrupted)) == 0


@given(st.sets(st.integers(0, 299)), st.integers(0, 30))
def test_what_was_due_and_never_sent_was_not_received(skipped: set[int], under_way: int) -> None:
    """A publisher that waits for confirms skips what is due; as many are received as are delivered."""
    sent = [number for number in range(300) if number not in skipped]
    delivered = {number: (number + under_way) / 10 + 0.01 for number in sent}
    told = seen([EVERY[number] for number in sent], [deliver(*row) for row in delivered.items()])
    assert measured("received_per_s", told) == sum(at_s < 10 for at_s in delivered.values()) / 10


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=30))
def test_times_from_sending_are_of_what_was_sent(lates_cs: list[tuple[int, int]]) -> None:
    """Each message is due every second, sent some hundredths later, and answered some more after that."""
    rows, deliveries = [], []
    for number, (late_cs, took_cs) in enumerate(lates_cs):
        sent_s = number + late_cs / 100
        sent = {"due_us": us(number), "sent_us": us(sent_s), "outcome_us": us(sent_s + took_cs / 100)}
        rows.append(publish(number, number) | sent)
        deliveries.append(deliver(number, sent_s + took_cs / 100))
    told = seen(rows, deliveries)
    took_ms = sorted(10.0 * took for number, (late, took) in enumerate(lates_cs) if number + late / 100 < 10)
    for name in ("confirm", "end_to_end"):
        assert measured(f"{name}_from_sent_p99_ms", told) == pytest.approx(took_ms[-1])
        assert measured(f"{name}_from_sent_p50_ms", told) == pytest.approx(took_ms[(len(took_ms) - 1) // 2])


def unconfirmed(from_s: float, to_s: float, late_s: float | None) -> list[Row]:
    """Messages of one queue, of which none is confirmed for some time, or those of that time ``late_s``."""
    rows = []
    for row in EVERY:
        out = us(from_s) <= row["due_us"] < us(to_s)
        never = {"outcome": Outcome.UNKNOWN}
        rows.append(row | ({} if not out else never if late_s is None else {"outcome_us": us(late_s)}))
    return rows


def test_an_outage_that_never_ended_is_longer_than_any_that_did() -> None:
    ended = measured("outage_s", seen(unconfirmed(12, 24, 24.0)))
    assert ended == pytest.approx(12, abs=0.2)
    assert measured("outage_s", seen(unconfirmed(20, 31, None))) == math.inf
    assert measured("outage_total_s", seen(unconfirmed(20, 31, None))) == math.inf
    afterwards = measured("outage_s", seen(unconfirmed(20, 31, 34.0)))
    assert afterwards == pytest.approx(14, abs=0.2), "it ended with the first confirm after publishing"
    other = [publish(number, number / 10, queue=1) for number in range(300)]
    of_one = seen([*unconfirmed(20, 31, None), *(row | {"sequence": row["sequence"] + 300} for row in other)])
    assert measured("outage_s", of_one) == math.inf
    assert measured("outage_total_s", of_one) == 0, "the other queue went on"
    assert measured("outage_s", seen(EVERY)) == 0
    assert measured("outage_s", seen(unconfirmed(29.2, 31, None))) == math.inf, "less than a second of it was seen"
    assert measured("outage_s", seen(unconfirmed(29.2, 31, 39.0))) == pytest.approx(9.8, abs=0.2)
    assert measured("outage_s", seen(unconfirmed(29.2, 31, 30.0))) == 0


@pytest.mark.parametrize(
    "name", ["confirmed_per_s", "confirm_p99_ms", "outage_s", "outage_total_s", "stall_s", "kept_ratio"]
)
def test_where_no_one_awaits_confirms_nothing_is_said_of_them(name: str) -> None:
    assert measured(name, seen(EVERY)) is not None
    assert measured(name, seen(EVERY, awaited=False)) is None


def beside_others(*moments_s: int) -> JudgedRun:
    """What came to the messages while other programs took much at these moments."""
    told = {"busy": 1.0, "waited_s": {}}
    return seen(EVERY, (), [event(at, "machine", others=0.9 * (at in moments_s), **told) for at in range(1, 40)])


DURING, AFTERWARDS = beside_others(*range(1, 11)), beside_others(*range(12, 40))


def test_other_programs_count_where_they_ran_next_to_what_is_measured(message: Messages) -> None:
    assert disturbed_by(DURING) != ""
    message(disturbed_by(DURING))
    assert disturbed_by(AFTERWARDS) == ""


@pytest.mark.parametrize(
    ("beside", "verdict", "status"),
    [
        (DURING, "VALID", "disturbed"),
        (DURING, "UNKNOWN", "disturbed"),
        (DURING, "INVALID", "not held"),
        (AFTERWARDS, "VALID", "measured"),
        (AFTERWARDS, "UNKNOWN", "unknown"),
        (AFTERWARDS, "INVALID", "measured"),
    ],
)
def test_a_promise_that_was_broken_stays_in_the_table(beside: JudgedRun, verdict: str, status: str) -> None:
    finding = {"verdict": verdict, "summary": "2 messages were lost"}
    told, why = status_of(replace(beside, document={"verdict": verdict, "invariants": {"no_loss": finding}}))
    assert told == status
    assert ("2 messages were lost" in why) == (verdict == "INVALID" or status == "unknown")


def test_a_look_at_the_processors_counts_for_its_time_in_the_phase() -> None:
    """Clients connect before the steady phase and are not busy then; the load begins with it, and ends after it."""
    looked = [(1, 0.2), (6, 1.0), (11, 0.9), (16, 0.1)]
    looks = [event(at_s, "machine", busy=busy, others=0.0, over_s=5.0) for at_s, busy in looked]
    busy_s = {1: 1 * 0.2, 6: 5 * 1.0, 11: 4 * 0.9}
    assert measured("cpu_busy", seen(EVERY, events=looks)) == pytest.approx(sum(busy_s.values()) / 10)
    assert measured("cpu_busy", seen(EVERY, events=looks[3:])) is None
    assert measured("cpu_busy", seen(EVERY)) is None
