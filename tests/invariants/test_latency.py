"""How long messages took: literal histories, and generated ones against a slow count of the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.latency_bound import LatencyBounds, percentile_ms
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.checkers.waits import LAGS_US, NEVER, Waits, confirm_waits, delivery_waits
from rabbitmq_resilience.history.history import Outcome
from tests.invariants import literal
from tests.invariants.literal import Row, cluster, deliver, event, phases, queues, us
from tests.messages import Messages


def load(
    rate_per_s: float | None = 10, *, publishers: int | None = 1, in_flight: int | None = 100, **fields: Any
) -> Any:
    told = {"rate_per_s": rate_per_s, "variable_rate": [], **fields}
    return event(10, "load", begins_us=us(10), publishers=publishers, in_flight=in_flight, **told)


CONNECTED = event(0.5, "worker", worker="publisher-0", event="connected", node="a1", detail="", life=0)


def row(
    sequence: int,
    due_s: float,
    *,
    sent_s: float | None = None,
    took_s: float = 0.005,
    outcome: Outcome = Outcome.CONFIRMED,
    **fields: Any,
) -> Row:
    sent_s = due_s if sent_s is None else sent_s
    times = {"due_us": us(due_s), "sent_us": us(sent_s), "outcome_us": us(sent_s + took_s)}
    return {**literal.publish(sequence, outcome=outcome), **times, **fields}


def steadily(count: int, *, took_s: float = 0.005, every_s: float = 0.1) -> list[Row]:
    return [row(n, 1 + n * every_s, took_s=took_s) for n in range(count)]


def history(publishes: Sequence[Row], deliveries: Sequence[Row] = (), *events: Any) -> Any:
    whole = [cluster(), queues("q1", "q2"), phases(), CONNECTED]
    return literal.history(publishes, deliveries, [*whole, *(events or [load()])])


def check(past: Any, *, within_ms: float = 10, **bound: Any) -> Finding:
    bounds = [{"of": "confirm", "within_ms": within_ms, **bound}]
    return LatencyBounds.model_validate({"bounds": bounds}).check(past)


def test_sane(message: Messages) -> None:
    finding = check(history(steadily(90)))
    assert finding.verdict is Verdict.VALID
    assert finding.numbers["confirm_p99_steady_ms"] == 5.0
    message(finding.summary)
    assert "5 ms" in finding.summary


def test_pathological(message: Messages) -> None:
    finding = check(history(steadily(90, took_s=0.02)))
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "+1.000 s" in finding.examples[0]
    assert "20 ms" in finding.examples[0]


def test_a_percentile_bears_the_rest() -> None:
    few = [row(n, 1 + n * 0.1, took_s=5 if n == 40 else 0.005) for n in range(90)]
    assert check(history(few), percentile=98).verdict is Verdict.VALID
    assert check(history(few), percentile=99).verdict is Verdict.INVALID


@pytest.mark.parametrize("lacking", ["steady", "chaos"])
def test_unknown_without_the_phase(lacking: str) -> None:
    told = phases(**{name: at_s for name, at_s in literal.PHASES.items() if name != lacking})
    past = literal.history(steadily(90), (), [cluster(), queues("q1"), told, load()])
    assert check(past).verdict is Verdict.UNKNOWN


def test_unknown_where_nothing_was_due() -> None:
    assert check(history((), (), load(None))).verdict is Verdict.UNKNOWN
    assert check(history(steadily(90), (), load(None)), when="chaos").verdict is Verdict.UNKNOWN


def test_only_what_was_due_then_counts() -> None:
    late = history([*steadily(90), row(90, 20, took_s=1)], (), load(None))
    assert check(late).verdict is Verdict.VALID
    assert check(late, when="always", percentile=100).verdict is Verdict.INVALID


def test_a_publisher_that_sends_no_more_does_not_hide_it(message: Messages) -> None:
    whole = steadily(880)
    assert check(history(whole), when="always").verdict is Verdict.VALID
    ended = check(history(whole[:800]), when="always")
    assert ended.verdict is Verdict.INVALID
    message(ended.summary)
    assert "never" in ended.summary
    assert check(history(whole, (), load(20, publishers=2)), when="always").verdict is Verdict.INVALID, "the other one"


@pytest.mark.parametrize("outcome", [Outcome.NACKED, Outcome.UNKNOWN])
def test_what_is_not_confirmed_is_later_than_any_bound(outcome: Outcome, message: Messages) -> None:
    finding = check(history([*steadily(89), row(89, 9.9, outcome=outcome)]), percentile=100, within_ms=86_400_000)
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "never" in finding.summary
    assert (
        check(history([*steadily(89), row(89, 9.9, outcome=Outcome.RETURNED)]), percentile=100).verdict is Verdict.VALID
    )


def test_a_stall_does_not_hide_itself(message: Messages) -> None:
    """Forty messages were due in the 4 s in which the publisher had no confirm; one of them was sent."""
    stalled = [*steadily(40), row(40, 5, took_s=4), *(row(41 + n, 9 + n * 0.1) for n in range(10))]
    assert np.isinf(percentile_ms(np.zeros(1, np.int64), np.full(1, NEVER), 100))
    finding = check(history(stalled, (), load(in_flight=1)), within_ms=1000)
    assert finding.verdict is Verdict.INVALID
    assert finding.numbers["confirm_p99_steady_messages"] == 51, "what was not sent counts for how long it took alone"
    message(finding.summary)
    assert "4.00 s" in finding.summary


def test_a_publisher_that_stands_still_by_itself_is_not_late() -> None:
    """It was connected, and nothing was under way: it sent nothing for 4 s all the same."""
    still = [*steadily(40), *(row(40 + n, 9 + n * 0.1) for n in range(10))]
    assert check(history(still, (), load(in_flight=1)), within_ms=1000).verdict is Verdict.UNKNOWN
    lost = [
        event(at_s, "worker", worker="publisher-0", event=what, node="a1", detail="", life=0)
        for at_s, what in ((4.95, "connection_lost"), (9, "connected"))
    ]
    assert check(history(still, (), load(in_flight=1), *lost), within_ms=1000).verdict is Verdict.INVALID


def test_what_was_not_sent_is_seen_also_where_nothing_says_how_many_publishers_there_were() -> None:
    early = load(publishers=None)
    still = [*steadily(40), *(row(40 + n, 9 + n * 0.1) for n in range(10))]
    assert check(history(still, (), early), within_ms=1000).verdict is Verdict.UNKNOWN
    assert check(history(steadily(90), (), early)).verdict is Verdict.VALID
    assert check(history(steadily(90, took_s=2), (), early)).verdict is Verdict.INVALID


def test_what_this_machine_does_not_hold_is_not_reported() -> None:
    lagging = [row(n, 1 + n * 0.1, sent_s=1.5 + n * 0.1) for n in range(90)]
    assert check(history(lagging)).verdict is Verdict.UNKNOWN
    assert check(history(lagging), within_ms=1000).verdict is Verdict.UNKNOWN, "it was not the load that is stated"
    slow = [row(n, 1 + n * 0.1, sent_s=1.5 + n * 0.1, took_s=0.05) for n in range(90)]
    assert check(history(slow)).verdict is Verdict.INVALID, "the broker is slow besides"


@pytest.mark.parametrize(
    "kept",
    [
        {"in_flight": 0},
        {"blocked": literal.blocked(0.6, 12)},
        {"lost": event(0.6, "worker", worker="publisher-0", event="connection_lost", node="a1", detail="", life=0)},
    ],
    ids=["in_flight", "blocked", "lost"],
)
def test_a_publisher_that_was_kept_from_sending_did_not_lag(kept: dict[str, Any]) -> None:
    late = [row(n, 1 + n * 0.1, sent_s=1.5 + n * 0.1) for n in range(90)]
    events = [load(in_flight=kept.pop("in_flight", 100)), *kept.values()]
    assert check(history(late, (), *events)).verdict is Verdict.INVALID


@pytest.mark.parametrize("ended", ["killed", "connection_lost", "hung"])
def test_a_block_ends_with_the_process_that_was_blocked(ended: str) -> None:
    """Another process takes over at once, and lags by itself from then on."""

    def client(at_s: float, what: str, life: int = 0) -> Any:
        return event(at_s, "worker", worker="publisher-0", event=what, node="a1", detail="", life=life)

    rows = [row(n, 1 + n * 0.1, sent_s=1.5 + n * 0.1) for n in range(90)]
    events = [client(0.6, "blocked"), client(0.7, ended), client(0.8, "started", 1), client(0.9, "connected", 1)]
    assert check(history(rows, (), load(), *events), within_ms=1000).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("took_s", "part", "node", "verdict"),
    [
        (0.02, 0.6, "b1", Verdict.UNKNOWN),
        (0.02, 0.4, "b1", Verdict.INVALID),
        (0.02, 0.9, "d1", Verdict.INVALID),
        (0.005, 0.9, "b1", Verdict.VALID),
    ],
)
def test_a_bound_that_brokers_broke_without_a_processor_is_unknown(
    took_s: float, part: float, node: str, verdict: Verdict, message: Messages
) -> None:
    """d1 is no broker of the cluster."""
    machine = [event(at_s, "machine", busy=1.0, others=0.0, waited_s={node: part}) for at_s in range(1, 60)]
    finding = check(history(steadily(90, took_s=took_s), (), load(), *machine))
    assert finding.verdict is verdict
    message(finding.summary)
    assert ("b1" in finding.summary and "60%" in finding.summary) is (verdict is Verdict.UNKNOWN)


def test_a_bound_that_breaks_while_other_programs_run_is_unknown() -> None:
    busy = [event(at_s, "machine", busy=0.9, others=0.5) for at_s in range(1, 12)]
    assert check(history(steadily(90, took_s=0.02), (), load(), busy)).verdict is Verdict.UNKNOWN
    assert check(history(steadily(90), (), load(), busy)).verdict is Verdict.VALID


def test_end_to_end() -> None:
    sent = steadily(90)
    arrived = [deliver(n, 1.02 + n * 0.1) for n in range(90)]
    assert check(history(sent, arrived), of="end_to_end", within_ms=25).verdict is Verdict.VALID
    assert check(history(sent, arrived), of="end_to_end", within_ms=15).verdict is Verdict.INVALID
    assert check(history(sent, arrived[:-1]), of="end_to_end", within_ms=25, percentile=100).verdict is Verdict.INVALID


@pytest.mark.parametrize("outcome", [Outcome.NACKED, Outcome.UNKNOWN])
def test_a_message_that_was_not_confirmed_and_never_arrives_is_later_than_any_bound(outcome: Outcome) -> None:
    refused = [row(n, 1 + n * 0.1, outcome=outcome if n % 2 else Outcome.CONFIRMED) for n in range(90)]
    arrived = [deliver(n, 1.02 + n * 0.1) for n in range(0, 90, 2)]
    assert check(history(refused, arrived), of="end_to_end", within_ms=25).verdict is Verdict.INVALID
    late = [*arrived, *(deliver(n, 1.02 + n * 0.1) for n in range(1, 90, 2))]
    assert check(history(refused, late), of="end_to_end", within_ms=25).verdict is Verdict.VALID


@pytest.mark.parametrize("early", [0, 1])
def test_a_publisher_that_begins_late_does_not_hide_it(early: int) -> None:
    """It is connected, and sends nothing else until the steady phase is over; the other one holds its rate."""
    connected = event(0.5, "worker", worker="publisher-1", event="connected", node="a1", detail="", life=0)
    of_other = [row(0, 1, publisher=1)] * early + [row(n + 1, 12 + n * 0.1, publisher=1) for n in range(700)]
    finding = check(history([*steadily(90), *of_other], (), load(20, publishers=2), connected), within_ms=300)
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.numbers["confirm_p99_steady_messages"] == 90 + early


def test_each_queue_counts_and_the_first_delivery_of_several() -> None:
    sent = [row(0, 2, queue=0, lane=0), row(0, 2, queue=1, lane=1)]
    arrived = [deliver(0, 2.5), deliver(0, 2.1), deliver(0, 2.3, queue=1), deliver(0, 2.05, queue=1, intact=False)]
    waits = delivery_waits(history(sent, arrived, load(None)))
    assert sorted((waits.answered_us - waits.due_us).tolist()) == [100_000, 300_000]


@st.composite
def schedules(draw: st.DrawFn) -> tuple[list[Row], list[Row], float, int]:
    """Messages of one publisher that holds a rate, with stalls; times in whole ms."""
    rate_per_s = draw(st.sampled_from([4, 10, 50]))
    rows, arrived = [], []
    due_ms = 1000
    sent_ms = 0
    for sequence in range(draw(st.integers(1, 12))):
        due_ms += (1000 // rate_per_s) * draw(st.sampled_from([1, 1, 1, 2, 30]))
        sent_ms = max(sent_ms, due_ms + draw(st.sampled_from([0, 3, 150, 201, 900])))
        took_ms = draw(st.sampled_from([1, 40, 700, 3000]))
        outcome = draw(st.sampled_from([Outcome.CONFIRMED] * 3 + [Outcome.NACKED, Outcome.UNKNOWN, Outcome.RETURNED]))
        rows.append(row(sequence, due_ms / 1000, sent_s=sent_ms / 1000, took_s=took_ms / 1000, outcome=outcome))
        for _ in range(draw(st.integers(0, 2))):
            arrived.append(deliver(sequence, (sent_ms + draw(st.integers(1, 5000))) / 1000))
    return rows, arrived, rate_per_s, draw(st.integers(1, 4))


def slowly(rows: list[Row], arrived: list[Row], rate_per_s: float, in_flight: int, *, of: str) -> list[tuple[int, ...]]:
    """Row by row: due, sent, answered and lagged."""
    every_us = round(1e6 / rate_per_s)
    found = []
    lay: list[tuple[int, int]] = []
    for place, each in enumerate(rows):
        moment_us = each["sent_us"] - LAGS_US
        answers_us = sorted(o["outcome_us"] for o in rows)
        room_us = answers_us[place - in_flight] if place >= in_flight else 0
        ready_us = max(each["due_us"], room_us, us(0.5))
        if moment_us > ready_us:
            lay.append((ready_us, each["sent_us"]))
        late = moment_us > each["due_us"]
        lagged = late and any(ready_us <= each["due_us"] <= sent_us for ready_us, sent_us in lay)
        lagged = lagged or moment_us > ready_us
        confirmed = each["outcome"] == Outcome.CONFIRMED
        first = min((a["received_us"] for a in arrived if a["sequence"] == each["sequence"]), default=NEVER)
        answered = first if of == "end_to_end" else each["outcome_us"] if confirmed else NEVER
        told = (each["sent_us"], answered, int(lagged))
        if each["outcome"] != Outcome.RETURNED or (of == "end_to_end" and first != NEVER):
            found.append((each["due_us"], *told))
        due_us = (rows[place - 1]["due_us"] if place else us(1)) + every_us
        while due_us < each["due_us"]:
            still = int(moment_us > max(due_us, room_us, us(0.5)))
            found.append((due_us, *told[:2], still))
            due_us += every_us
    due_us = rows[-1]["due_us"] + every_us
    while due_us + every_us / 2 <= us(89):
        found.append((due_us, due_us, NEVER, 0))
        due_us += every_us
    return sorted(found)


@given(schedules())
def test_a_slow_count_finds_the_same(drawn: tuple[list[Row], list[Row], float, int]) -> None:
    rows, arrived, rate_per_s, in_flight = drawn
    past = history(rows, arrived, load(rate_per_s, in_flight=in_flight))
    for of, made in (("confirm", confirm_waits), ("end_to_end", delivery_waits)):
        assert listed(made(past)) == slowly(rows, arrived, rate_per_s, in_flight, of=of), of


def listed(waits: Waits) -> list[tuple[int, ...]]:
    columns = (waits.due_us, waits.sent_us, waits.answered_us, waits.lagged.astype(int))
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@given(st.lists(st.integers(0, 50) | st.none(), min_size=1, max_size=30), st.floats(0.1, 100))
def test_a_percentile_by_its_definition(took: list[int | None], percentile: float) -> None:
    until = np.array([NEVER if each is None else each for each in took], np.int64)
    reached = percentile_ms(np.zeros(len(took), np.int64), until, percentile)
    ordered = sorted(math.inf if each is None else each / 1000 for each in took)
    enough = [ms for rank, ms in enumerate(ordered, 1) if rank >= len(took) * percentile / 100 - 1e-9]
    assert reached == enough[0]
