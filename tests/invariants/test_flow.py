"""What a cluster does with too much: a literal history for each answer."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.checkers.flow import Answer
from rabbitmq_resilience.checkers.verdict import Verdict
from tests.invariants import literal
from tests.invariants.flowing import Curve, answer, check, history, in_turn, load
from tests.invariants.literal import blocked, event, fault
from tests.messages import Messages


def test_takes_all_and_collapses(message: Messages) -> None:
    finding = check(history(lambda at_s: 95 if at_s < 15 else 15))
    assert (finding.verdict, finding.numbers["answer"]) == (Verdict.INVALID, Answer.COLLAPSES.value)
    message(finding.summary)
    assert finding.examples == (finding.summary,)


def test_collapses_where_it_takes_all_and_delivers_nothing_any_more() -> None:
    past = history(lambda _: 100, delivered=lambda at_s: 95 if at_s < 15 else 5)
    assert answer(past) == (Verdict.INVALID, Answer.COLLAPSES.value)


def test_swings() -> None:
    finding = check(history(in_turn(90, 5, 3)))
    assert (finding.verdict, finding.numbers["answer"]) == (Verdict.INVALID, Answer.SWINGS.value)
    assert finding.numbers["swings"] == 4


def test_slows_publishers() -> None:
    finding = check(history(lambda _: 60))
    assert (finding.verdict, finding.numbers["answer"]) == (Verdict.VALID, Answer.SLOWS.value)
    assert finding.numbers["taken_per_s"] == pytest.approx(60, abs=1)
    assert finding.numbers["latency_last_ms"] == 20
    assert finding.coverage is not None and (finding.coverage.judged, finding.coverage.demanded) == (30, 30)


def test_takes_more_than_it_delivers() -> None:
    assert answer(history(lambda _: 100, delivered=lambda _: 80)) == (Verdict.VALID, Answer.GROWS.value)


def test_latency_grows() -> None:
    past = history(lambda _: 60, lambda at_s: 0.1 + at_s / 10)
    assert answer(past) == (Verdict.VALID, Answer.GROWS.value)


def test_holds_all() -> None:
    """Then it does not matter that publishers have little in flight."""
    assert answer(history(lambda _: 100, in_flight_s=0.01)) == (Verdict.VALID, Answer.HOLDS.value)


def test_too_much_taken_at_first_is_no_collapse() -> None:
    past = history(lambda at_s: 300 if at_s < 3 else 50, delivered=lambda _: 50, told=load(400, in_flight=20))
    assert answer(past)[1] == Answer.GROWS.value


def test_one_pause_or_two_are_no_swings() -> None:
    def pauses(times: int) -> Curve:
        return lambda at_s: 5 if int(at_s) in range(5, 5 + 4 * times, 4) else 95

    told = load(in_flight=40)
    assert answer(history(pauses(2), told=told))[1] == Answer.SLOWS.value
    assert answer(history(pauses(3), told=told))[1] == Answer.SWINGS.value


def test_each_of_two_queues_is_owed_the_message() -> None:
    assert answer(history(lambda _: 100, lanes=2)) == (Verdict.VALID, Answer.HOLDS.value)
    past = history(lambda _: 100, lanes=2)
    half = [row for batch in past.deliveries() for row in batch.to_pylist() if row["queue"] == 0]
    rows = [row for batch in past.publishes() for row in batch.to_pylist()]
    assert answer(literal.history(rows, half, past.events))[1] == Answer.GROWS.value


def test_unknown_where_clients_did_not_make_the_load(message: Messages) -> None:
    """60/s of 100/s were taken, and 24 of 50 messages are under way on average, or 26."""
    told = load(in_flight=50)
    finding = check(history(lambda _: 60, in_flight_s=0.4, told=told))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "48%" in finding.summary
    assert check(history(lambda _: 60, in_flight_s=0.44, told=told)).verdict is Verdict.VALID
    assert check(history(in_turn(90, 5, 3), in_flight_s=0.1)).verdict is Verdict.UNKNOWN


def test_a_blocked_publisher_waits() -> None:
    """Blocked for two thirds of the time, it could not have had more in flight."""
    told = load(in_flight=50)
    past = history(in_turn(90, 0, 5), lambda _: 0.02, *[blocked(6 + 10 * i, 11 + 10 * i) for i in range(3)], told=told)
    assert check(past).verdict is Verdict.VALID, "two swings are none"
    free = history(in_turn(90, 0, 5), told=told)
    assert check(free).verdict is Verdict.UNKNOWN
    assert check(past).numbers["waiting_ratio"] == pytest.approx(
        2 * float(check(free).numbers["waiting_ratio"] or 0), abs=0.01
    )


@pytest.mark.parametrize("told", [load(in_flight=None), load(publishers=None)])
def test_unknown_where_nothing_limits_publishers(told: Any) -> None:
    assert check(history(lambda _: 60, told=told)).verdict is Verdict.UNKNOWN
    assert check(history(lambda _: 100, told=told)).verdict is Verdict.VALID


def test_without_a_target_the_confirms_limit_it() -> None:
    assert answer(history(lambda _: 60, told=load(None, in_flight=30))) == (Verdict.VALID, Answer.SLOWS.value)
    assert answer(history(in_turn(90, 5, 3), told=load(None, in_flight=30)))[0] is Verdict.INVALID


def test_unknown_where_the_time_is_too_short(message: Messages) -> None:
    assert check(history(lambda _: 100, end_s=15.5)).verdict is Verdict.UNKNOWN
    assert check(history(lambda _: 100, end_s=16)).verdict is Verdict.VALID
    finding = check(history(lambda _: 100), window_s=3)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "45 s" in finding.summary
    assert "15 s" in finding.summary


def test_unknown_with_too_few_messages(message: Messages) -> None:
    finding = check(history(lambda _: 20, told=load(20)))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert check(history(lambda _: 20, told=load(20)), window_s=2).verdict is Verdict.VALID


def test_faults_are_left_out() -> None:
    """What it does beside one, and for a while after it, is another matter."""
    broken = history(lambda at_s: 0 if 15 < at_s < 20 else 100, lambda _: 0.02, fault(16, 20))
    assert check(broken, grace_s=10).verdict is Verdict.UNKNOWN, "nothing was judged after it"
    longer = history(lambda at_s: 0 if 15 < at_s < 20 else 100, lambda _: 0.02, fault(16, 20), end_s=46)
    assert check(longer, grace_s=10).verdict is Verdict.VALID
    assert check(broken, grace_s=10).coverage == check(history(lambda _: 100, lambda _: 0.02, fault(16, 20))).coverage
    assert check(longer, grace_s=0).verdict is Verdict.VALID
    for_good = history(lambda _: 100, lambda _: 0.02, fault(5, 9, states=("injecting", "injected")))
    assert check(for_good).verdict is Verdict.UNKNOWN


def test_each_load_is_looked_at_by_itself() -> None:
    steps = [{"rate_per_s": 200, "for_s": 15}]
    told = load(variable_rate=steps)
    finding = check(history(lambda at_s: 200 if 10 <= at_s < 25 else 100, told=told, end_s=46))
    assert (finding.verdict, finding.numbers["stretches"]) == (Verdict.VALID, 2)
    collapsed = history(lambda at_s: 5 if 18 <= at_s < 25 else 200 if at_s >= 10 else 100, told=told, end_s=46)
    assert check(collapsed).numbers["answer"] == Answer.COLLAPSES.value
    pause = load(variable_rate=[{"rate_per_s": 0, "for_s": 20}])
    assert check(history(lambda _: 100, told=pause)).verdict is Verdict.UNKNOWN


def test_where_a_service_slows_down_another_load_begins() -> None:
    """Until 16 s after the load began it takes all, and then a tenth of it."""
    steps = [{"processing_ms": 5, "for_s": 6}, {"processing_ms": 100, "for_s": 20}]
    service = {"name": "s", "queues": 1, "consumers": 1, "processing_ms": 5, "variable_processing": steps}

    def delivered(at_s: float) -> float:
        return 100 if at_s < 16 else 10

    for of_load in (load(processing_ms=5, variable_processing=steps), load(services=[service])):
        assert check(history(lambda _: 100, delivered=delivered, told=of_load)).verdict is Verdict.VALID
    collapses = history(lambda _: 100, delivered=delivered)
    assert check(collapses).numbers["answer"] == Answer.COLLAPSES.value


def test_unknown_next_to_busy_programs() -> None:
    busy = [event(at_s, "machine", busy=1.0, others=0.3) for at_s in range(1, 32, 5)]
    assert check(history(in_turn(90, 5, 3), lambda _: 0.02, *busy)).verdict is Verdict.UNKNOWN
    assert check(history(lambda _: 100, lambda _: 0.02, *busy)).verdict is Verdict.VALID


def test_empty() -> None:
    assert check(literal.history()).verdict is Verdict.UNKNOWN
    assert check(history(lambda _: 0)).verdict is Verdict.UNKNOWN
