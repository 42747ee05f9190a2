from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers import columns
from rabbitmq_resilience.checkers.single_active_consumer import NOTICED_WITHIN_S, STOPPED_WITHIN_S, SingleActiveConsumer
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import (
    Row,
    cluster,
    deliver,
    event,
    fault,
    history,
    node_states,
    phases,
    publish,
    queues,
    sample,
)
from tests.messages import Messages

EVENTS = [cluster(), queues("q1", "q2"), phases()]


def worker(at_s: float, what: str, consumer: int = 0) -> Event:
    return event(at_s, "worker", worker=f"consumer-{consumer}", event=what)


CONNECTED = [worker(0.5, what, consumer) for consumer in (0, 1) for what in ("started", "connected")]


def check(received: Sequence[tuple[int, float]], *events: Any, sent_s: Sequence[float] | None = None) -> Finding:
    """``received``: a consumer and the second in which it received the next message, which was sent 0.1 s before if
    nothing else is said."""
    sent = [at_s - 0.1 for _, at_s in received] if sent_s is None else sent_s
    deliveries = [deliver(n, at_s, consumer=consumer) for n, (consumer, at_s) in enumerate(received)]
    publishes = [publish(n, at_s) for n, at_s in enumerate(sent)]
    return SingleActiveConsumer().check(history(publishes, deliveries, [*EVENTS, CONNECTED, *events]))


def test_nothing_was_received() -> None:
    assert SingleActiveConsumer().check(history()).verdict is Verdict.UNKNOWN


def test_one_consumer_receives_everything() -> None:
    finding = check([(0, at_s) for at_s in range(1, 90)])
    assert (finding.verdict, finding.numbers["handovers"]) == (Verdict.VALID, 0)
    assert finding.coverage is not None and finding.coverage.judged == finding.coverage.demanded == 89


def test_another_takes_over_from_one_that_is_gone() -> None:
    finding = check([(0, 1), (0, 2), (1, 4), (1, 5)], worker(3, "connection_lost"))
    assert (finding.verdict, finding.numbers["handovers"]) == (Verdict.VALID, 1)


def test_consumers_in_turn_are_reported_by_the_messages(message: Messages) -> None:
    finding = check([(0, 1), (1, 2), (0, 3), (1, 4)])
    assert (finding.verdict, finding.numbers["received_beside"]) == (Verdict.INVALID, 2)
    (told,) = [
        example for example in finding.examples if "publisher 0 sequence 2 " in example and "+1.000 s" in example
    ]
    assert all(f"sequence {n} " in told and f"+{n + 1}.000 s" in told for n in range(3))
    message(told)


def test_one_that_comes_back_over_another_connection_is_another_one() -> None:
    lost = [worker(1.5, "connection_lost"), worker(2.5, "connection_lost", consumer=1)]
    assert check([(0, 1), (1, 2), (0, 3)], lost).verdict is Verdict.VALID


@pytest.mark.parametrize("end", ["killed", "hung", "stopped", "started"])
def test_whatever_ended_a_connection_ended_it(end: str) -> None:
    assert check([(0, 1), (1, 2), (0, 3)], worker(1.5, end), worker(2.5, "hung", 1)).verdict is Verdict.VALID


def test_what_was_under_way_to_one_that_was_replaced_may_come_late() -> None:
    """Consumer 0 reads at +4 s what the broker sent it before its connection ended, which it notices afterwards."""
    finding = check([(0, 1), (1, 3), (0, 4), (1, 5)], worker(4.5, "connection_lost"), sent_s=[0.9, 2, 1, 4.9])
    assert (finding.verdict, finding.numbers["received_beside"]) == (Verdict.VALID, 0)


def test_without_a_proof_it_is_not_broken() -> None:
    """All were sent before any was received."""
    finding = check([(0, 1), (1, 2), (0, 3)], sent_s=[0.7, 0.8, 0.9])
    assert (finding.verdict, finding.numbers["handovers_unexplained"]) == (Verdict.UNKNOWN, 2)


@pytest.mark.parametrize(("last_s", "verdict"), [(2.001, Verdict.INVALID), (2, Verdict.UNKNOWN)])
def test_the_first_must_have_been_there_still(last_s: float, verdict: Verdict) -> None:
    assert check([(0, 1), (1, 2), (0, 3)], sent_s=[0.9, 1.9, last_s]).verdict is verdict


@pytest.mark.parametrize(("between_s", "verdict"), [(1.001, Verdict.INVALID), (1, Verdict.UNKNOWN)])
def test_the_first_must_have_received_before(between_s: float, verdict: Verdict) -> None:
    assert check([(0, 1), (1, 2), (0, 3)], sent_s=[0.9, between_s, 2.9]).verdict is verdict


def test_one_that_took_over_from_one_that_stayed_connected_is_reported(message: Messages) -> None:
    finding = check([(0, 1), (1, 2)])
    assert (finding.verdict, finding.numbers["handovers_unexplained"]) == (Verdict.UNKNOWN, 1)
    message(finding.summary)
    assert "q1" in finding.summary
    assert "consumer 1" in finding.summary
    assert "+2.000 s" in finding.summary
    assert "consumer 0" in finding.summary
    assert "+1.000 s" in finding.summary


@pytest.mark.parametrize(("after_s", "verdict"), [(0, Verdict.VALID), (0.001, Verdict.UNKNOWN)])
@pytest.mark.parametrize(
    ("end", "within_s"),
    [("connection_lost", NOTICED_WITHIN_S), ("killed", NOTICED_WITHIN_S), ("stopped", STOPPED_WITHIN_S)],
)
def test_an_end_is_noticed_in_time_or_it_explains_nothing(
    end: str, within_s: float, after_s: float, verdict: Verdict
) -> None:
    noticed = worker(2 + within_s + after_s, end)
    assert check([(0, 1), (1, 2)], noticed).verdict is verdict


TURNS = [(0, 31), (1, 32), (0, 33)]
A1 = [("a1", "b1"), ("b1", "a1")]


@pytest.mark.parametrize(
    "disturbing",
    [
        pytest.param(fault(30.5, 31.5, cut=A1), id="brokers cut apart"),
        pytest.param(fault(30.5, 31.5, down=["c1"]), id="a broker gone"),
        pytest.param(fault(30.5, 31.5, slow=A1), id="packets lost"),
        pytest.param(fault(30.5, 31.5, starved=["a1"]), id="a broker starved"),
        pytest.param(fault(10, 16.1, cut=A1), id="noticed and mended late"),
        pytest.param(node_states(unlike={"b1": [(31, 31.5, "paused")]}), id="a node seen to pause"),
        pytest.param([sample(30.5), sample(31.5, leader="b1"), sample(90, leader="b1")], id="another leader"),
        pytest.param([sample(30.5), sample(31, leader=None), sample(31.5, leader="b1")], id="a leader after none"),
    ],
)
def test_nothing_is_demanded_while_brokers_may_know_different_things(disturbing: list[Event]) -> None:
    finding = check([*TURNS, (0, 89)], disturbing)
    assert finding.verdict is not Verdict.INVALID
    assert finding.coverage is not None and finding.coverage.judged < 4


@pytest.mark.parametrize(
    "calm",
    [
        pytest.param(fault(10, 15.8, cut=A1), id="long ago"),
        pytest.param(fault(33.5, 40, cut=A1), id="only later"),
        pytest.param(fault(30.5, 32.5, cut=[("publisher:0", "a1"), ("a1", "publisher:0")]), id="clients"),
        pytest.param(fault(30.5, 32.5, name="kill_client"), id="a client"),
        pytest.param(fault(30.5, 32.5, cut=A1, states=["skipped"]), id="never began"),
        pytest.param([*node_states(), *(sample(at_s) for at_s in range(90))], id="nothing"),
        pytest.param([sample(30.5), sample(31.5, leader=None), sample(90)], id="a leader that did not answer"),
        pytest.param([sample(at_s, names=["q2"], leader=f"{at_s}") for at_s in range(90)], id="another queue"),
    ],
)
def test_it_is_demanded_again_and_whatever_happens_to_clients(calm: list[Event]) -> None:
    assert check([*TURNS, (0, 89)], calm).verdict is Verdict.INVALID


def test_what_was_under_way_during_a_disturbance_proves_nothing() -> None:
    """Sent before the cut, received long after: consumer 0 was perhaps replaced meanwhile."""
    finding = check([(0, 60), (1, 62), (0, 64)], fault(20, 21, cut=A1), sent_s=[19, 61, 63])
    assert finding.verdict is not Verdict.INVALID


@pytest.mark.parametrize(("last_s", "verdict"), [(36.3, Verdict.VALID), (36.2, Verdict.UNKNOWN)])
def test_something_must_come_after_brokers_have_settled(last_s: float, verdict: Verdict, message: Messages) -> None:
    """The cut ends at 21.25 s, is noticed within 5 s, and mended 10 s later."""
    finding = check([(0, 1), (0, last_s)], fault(20, 21.25, cut=A1))
    assert finding.verdict is verdict
    message(finding.summary)
    assert ("q1" in finding.summary) == (verdict is Verdict.UNKNOWN)


def test_a_consumer_of_which_no_connection_is_recorded_leaves_it_unknown(message: Messages) -> None:
    rows = [deliver(0, 1.1, consumer=0), deliver(1, 2.1, consumer=7)]
    finding = SingleActiveConsumer().check(history([publish(0, 1), publish(1, 2)], rows, [*EVENTS, CONNECTED]))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "consumer 7" in finding.summary
    alone = SingleActiveConsumer().check(history([publish(1, 2)], rows[1:], [*EVENTS, CONNECTED]))
    assert alone.verdict is Verdict.VALID, "it has nobody to take turns with"


def test_nothing_was_seen_after_the_last_fault() -> None:
    assert check([(0, 1), (0, 2)], fault(20, 21, name="kill_client")).verdict is Verdict.UNKNOWN


def test_queues_are_judged_each_for_itself() -> None:
    publishes = [publish(n, n, queue=n % 2) for n in range(1, 9)]
    deliveries = [deliver(n, n + 0.1, queue=n % 2, consumer=n % 2) for n in range(1, 9)]
    finding = SingleActiveConsumer().check(history(publishes, deliveries, [*EVENTS, CONNECTED]))
    assert (finding.verdict, finding.numbers["queues"]) == (Verdict.VALID, 2)


# A second way: for each delivery, all others one by one.

SECONDS = st.integers(1, 60)


@st.composite
def records(draw: st.DrawFn) -> tuple[list[Row], list[Row], list[Event], list[tuple[float, float]]]:
    """Anything: messages sent and received at some time by somebody, connections that end, cuts."""
    at_s = draw(st.lists(SECONDS, min_size=1, max_size=12, unique=True))
    rows = [(consumer, received_s) for received_s in at_s for consumer in [draw(st.integers(0, 2))]]
    sent_s = [received_s - draw(st.sampled_from([0.1, 0.5, 2.5, 30])) for _, received_s in rows]
    publishes = [publish(n, max(0.0, at)) for n, at in enumerate(sent_s) if draw(st.integers(0, 9))]
    deliveries = [
        deliver(n, at, consumer=consumer, again=draw(st.booleans()), intact=draw(st.integers(0, 9)) > 0)
        for n, (consumer, at) in enumerate(rows)
    ]
    ends = draw(st.lists(st.tuples(SECONDS, st.integers(0, 2)), max_size=4))
    events = [worker(0.5, "connected", consumer) for consumer in (0, 1, 2)]
    events += [worker(at - 0.5, "connection_lost", consumer) for at, consumer in ends]
    cuts = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 3)), max_size=1))
    disturbed = [(float(start), start + lasts + 1.25 * 4 + 10) for start, lasts in cuts]
    return (
        publishes,
        deliveries,
        [*events, *(e for start, lasts in cuts for e in fault(start, start + lasts, cut=A1))],
        disturbed,
    )


def proven(
    publishes: list[Row], deliveries: list[Row], events: list[Event], disturbed: list[tuple[float, float]]
) -> set[int]:
    """The sequences of those that were received between two of another connection."""
    sent_us = {row["sequence"]: row["sent_us"] for row in publishes}
    whole = [row for row in deliveries if row["intact"] and row["sequence"] in sent_us]

    def stint(row: Row) -> tuple[int, int]:
        name = f"consumer-{row['consumer']}"
        ends = [e for e in events if getattr(e, "worker", "") == name and getattr(e, "event", "") == "connection_lost"]
        return row["consumer"], sum(end.t_us <= row["received_us"] for end in ends)

    found = set()
    for between in whole:
        for before in whole:
            for after in whole:
                same = stint(before) == stint(after) != stint(between)
                first = before["received_us"] < sent_us[between["sequence"]]
                then = between["received_us"] < sent_us[after["sequence"]]
                span_s = [(t - 1_000_000_000) / 1e6 for t in (sent_us[before["sequence"]], between["received_us"])]
                calm = all(span_s[1] < start or end <= span_s[0] for start, end in disturbed)
                if same and first and then and calm:
                    found.add(between["sequence"])
    return found


@given(records(), st.integers(1, 5))
def test_every_three_deliveries_one_by_one_tell_the_same(
    record: tuple[list[Row], list[Row], list[Event], list[tuple[float, float]]], rows_together: int
) -> None:
    publishes, deliveries, events, _ = record
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "ROWS_TOGETHER", rows_together)
        judged = history(publishes, deliveries, [*EVENTS, events], batch_rows=2)
        finding = SingleActiveConsumer().check(judged)
    expected = proven(*record)
    assert finding.numbers.get("received_beside", 0) == len(expected)
    assert (finding.verdict is Verdict.INVALID) == bool(expected)


# The truth: a broker of which it is known whom it takes for the active consumer, in ticks of 0.1 s.

LAST, SHARED = 500, range(100, 160)


@dataclass(frozen=True)
class Connection:
    """The broker has it from ``begins`` to ``gone``; the consumer notices its end later."""

    consumer: int
    begins: int
    gone: int
    noticed: int
    latency: int


@st.composite
def connections(draw: st.DrawFn, *, first_gone: int) -> list[Connection]:
    found = []
    for consumer in range(draw(st.integers(2, 3))):
        begins = draw(st.integers(0, 20))
        for gone in sorted(draw(st.lists(st.integers(first_gone, LAST), max_size=3))):
            if gone < begins:
                continue  # it had not come back
            noticed = gone + draw(st.integers(0, 20))
            found.append(Connection(consumer, begins, gone, noticed, draw(st.integers(0, 9))))
            begins = noticed + draw(st.integers(1, 30))
        found.append(Connection(consumer, begins, 2 * LAST, 2 * LAST, draw(st.integers(0, 9))))
    return found


def played(of: list[Connection], *, every: int, held: int, shared: Collection[int] = ()) -> Finding:
    """A message every so many ticks, which lies in the queue for ``held`` ticks; what is under way to a consumer that
    goes comes again. In the ticks of ``shared`` the broker gives messages in turn to two that are there."""
    waiting = [(at, n) for n, at in enumerate(range(10, LAST, every))]
    publishes = [publish(n, at / 10) for at, n in waiting]
    deliveries: list[Row] = []
    under_way: list[tuple[tuple[int, int], Connection, int]] = []
    active: Connection | None = None
    for tick in range(2 * LAST):
        there = sorted((c for c in of if c.begins <= tick < c.gone), key=lambda c: (c.begins, c.consumer))
        for connection in (c for c in of if c.gone == tick):
            waiting = sorted({*waiting, *(row for row, to, at in under_way if to == connection and at >= tick - 5)})
        active = active if active in there else next(iter(there), None)
        while active is not None and waiting and waiting[0][0] + held <= tick:
            row = waiting.pop(0)
            to = there[row[1] % 2] if tick in shared else active
            under_way.append((row, to, tick))
            arrives = tick + to.latency + len(under_way) / 1e5
            if arrives < to.noticed:
                deliveries.append(deliver(row[1], arrives / 10, consumer=to.consumer))
    ends = [worker(c.noticed / 10, "connection_lost", c.consumer) for c in of if c.gone < 2 * LAST]
    known = [worker(0, "connected", c.consumer) for c in of]
    return SingleActiveConsumer().check(history(publishes, deliveries, [*EVENTS, known, ends]))


@given(connections(first_gone=0), st.integers(1, 12), st.sampled_from([0, 5, 60]))
def test_a_broker_that_keeps_its_promise_is_never_asked_to_break_it(
    of: list[Connection], every: int, held: int
) -> None:
    finding = played(of, every=every, held=held)
    assert (finding.verdict, finding.numbers["received_beside"]) == (Verdict.VALID, 0), finding.summary


@given(connections(first_gone=200), st.integers(1, 4))
def test_a_broker_that_serves_two_at_a_time_is_always_noticed(of: list[Connection], every: int) -> None:
    assert played(of, every=every, held=0, shared=SHARED).verdict is Verdict.INVALID
