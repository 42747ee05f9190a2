"""When a queue keeps its messages to itself: literal histories, and generated ones told second by second."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.recovery import Recovery
from rabbitmq_resilience.checkers.starved import STARVED_S, starved
from rabbitmq_resilience.checkers.times import Period, periods, times
from rabbitmq_resilience.checkers.verdict import Finding, History, Verdict
from rabbitmq_resilience.history.events import Event, SampleEvent
from tests.invariants.literal import (
    cluster,
    deliver,
    event,
    fault,
    history,
    load,
    node_states,
    phases,
    queues,
    sample,
    us,
)
from tests.messages import Messages

END = 150


def worker(at_s: float, what: str, name: str = "consumer-0") -> Event:
    return event(at_s, "worker", worker=name, event=what, node="a1", detail="")


def look(at_s: float, ready: int | None, unacked: int | None = 0) -> SampleEvent:
    seen = sample(at_s)
    return replace(seen, queues={"q1": {**seen.queues["q1"], "ready": ready, "unacked": unacked}})


def told(looks: Sequence[SampleEvent], arrived_s: Sequence[float], *more: Any, processing_ms: float = 0) -> History:
    events = [cluster(), queues("q1"), phases(steady=0, chaos=10, recovery=60, drain=90, end=END)]
    events += [
        fault(20, 60, name="kill"),
        node_states(end_s=END),
        load(10, 100, processing_ms=processing_ms),
        list(looks),
        *more,
    ]
    return history((), [deliver(i, at) for i, at in enumerate(arrived_s)], events)


CONNECTED = worker(1, "connected")
#: Ready messages from 70 s on.
HELD = [look(at, 9 if at >= 70 else 0) for at in range(END)]


def judged(*args: Any, **options: Any) -> Finding:
    return Recovery(within_s=60).check(told(*args, **options))


def test_sane_a_queue_that_delivers_now_and_then() -> None:
    assert judged(HELD, [69, 95, 120, 149], CONNECTED).verdict is Verdict.VALID


def test_pathological_ready_to_the_end_and_nothing_arrives(message: Messages) -> None:
    finding = judged(HELD, [69], CONNECTED)
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "q1" in finding.summary


def test_sane_the_consumer_holds_all_that_it_may() -> None:
    assert judged([look(at, 9, 5) for at in range(END)], [], CONNECTED).verdict is Verdict.VALID


def test_sane_the_consumer_was_away() -> None:
    away = [CONNECTED, worker(90, "connection_lost"), worker(125, "connected")]
    assert judged(HELD, [69], away).verdict is Verdict.VALID


def test_sane_another_consumer_has_not_come_yet() -> None:
    other = [worker(1, "started", "consumer-1"), worker(130, "connected", "consumer-1")]
    assert judged(HELD, [], CONNECTED, other).verdict is Verdict.VALID
    assert judged(HELD, [69], CONNECTED, other).verdict is Verdict.INVALID, "consumer-0 reads the queue, and is there"


@pytest.mark.parametrize("reads_too", [False, True])
def test_a_consumer_of_another_queue_hides_no_starved_one(reads_too: bool) -> None:
    """consumer-1 comes and goes; it reads q1 too, or another queue alone."""
    flaps = [
        worker(at, what, "consumer-1")
        for start_s in (1, 60, 85, 110, 135)
        for at, what in ((start_s, "connected"), (start_s + 20, "connection_lost"))
    ]
    got = [deliver(0, 50), deliver(1, 51, consumer=1, queue=0 if reads_too else 1)]
    events = [queues("q1", "q2"), CONNECTED, *flaps]
    past = told(HELD, [], *events)
    found = starved(replace(past, deliveries=history((), got, ()).deliveries), (us(0), us(END)))
    assert bool(found) is not reads_too


def test_sane_without_consumers() -> None:
    assert judged(HELD, []).verdict is Verdict.VALID


def test_a_queue_that_is_read_at_the_drain_only_may_keep_its_messages_until_then() -> None:
    of_another_queue = [event(0, "queues", queues={}, read_at_drain=["q1"]), CONNECTED]
    until_the_drain = [look(at, 9 if 30 <= at < 91 else 0) for at in range(END)]
    soon = Recovery(within_s=20)
    assert soon.check(told(until_the_drain, [91], CONNECTED)).verdict is Verdict.INVALID
    assert soon.check(told(until_the_drain, [91], of_another_queue)).verdict is Verdict.VALID
    assert judged(HELD, [69], of_another_queue).verdict is Verdict.INVALID, "nothing came in the drain either"


def test_pathological_also_where_the_consumers_go_before_the_last_looks() -> None:
    assert judged(HELD, [69], CONNECTED, worker(END - 4.5, "stopped")).verdict is Verdict.INVALID


def test_sane_a_message_takes_as_long() -> None:
    assert judged(HELD, [69, 110], CONNECTED, processing_ms=15_000).verdict is Verdict.VALID


def test_pathological_late_but_in_the_end() -> None:
    """It kept them for 55 s: only from the next look on it has recovered."""
    finding = judged(HELD, [69, *range(125, END)], CONNECTED)
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.INVALID, 66)


def test_unknown_where_no_node_says_what_is_ready(message: Messages) -> None:
    silent = [look(at, None) for at in range(END)]
    finding = judged(silent, [69], CONNECTED)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert judged(silent, [69, 95, 120, 149], CONNECTED).verdict is Verdict.VALID
    known = [look(at, 0 if at < 90 or at >= 115 else None) for at in range(END)]
    assert judged(known, [69], CONNECTED).verdict is Verdict.VALID, "for less than 30 s"
    in_time = [look(at, None if 61 <= at < 100 else 0) for at in range(END)]
    assert judged(in_time, [60.5], CONNECTED).verdict is Verdict.VALID, "it was due 120 s after the begin"


Second = tuple[bool, bool, bool, bool]  # ready, held by consumers, connected, arrives


@st.composite
def seconds(draw: st.DrawFn) -> list[Second]:
    """Spells of some length, in which one of the four is mostly as it must be for a queue to keep its messages."""
    rows: list[Second] = []
    for _ in range(draw(st.integers(1, 6))):
        spell = draw(st.tuples(*(st.sampled_from([good] * 4 + [not good]) for good in (True, False, True, False))))
        rows += [spell] * draw(st.integers(1, 60))
    return rows


@given(seconds())
def test_second_by_second(truth: list[Second]) -> None:
    looks = [look(at, int(ready), int(held)) for at, (ready, held, _, _) in enumerate(truth)]
    there = [connected for _, _, connected, _ in truth]
    workers = [
        worker(at, "connected" if now else "connection_lost")
        for at, (before, now) in enumerate(zip([None, *there], there, strict=False))
        if now != before
    ]
    arrived = [at + 0.5 for at, row in enumerate(truth) if row[3]]
    found = starved(told(looks, arrived, workers), (us(0), us(len(truth))))
    assert list(found.get("q1", ())) == slowly(truth)


def slowly(truth: list[Second]) -> list[Period]:
    """The longest rows of seconds between whose first and last look nothing speaks against it. A connection is lost at
    the moment of a look, which then still shows what it could have delivered."""
    silent: list[Period] = []
    begun = None
    for at, (ready, held, connected, _) in enumerate([*truth, (False, True, True, False)]):
        could = ready and not held
        if begun is not None and not (could and connected):
            end = at if could else at - 1
            edges = [begun, *(second + 0.5 for second in range(begun, end) if truth[second][3]), end]
            silent += [(us(a), us(b)) for a, b in itertools.pairwise(edges) if b - a > STARVED_S]
            begun = None
        elif begun is None and could and connected:
            begun = at
    return silent


changes = st.lists(
    st.tuples(
        st.sampled_from(["consumer-0", "consumer-1", "consumer-10", "publisher-0"]),
        st.sampled_from(["started", "connected", "connection_lost", "killed", "stopped", "blocked"]),
    ),
    max_size=30,
)


@example([("consumer-0", "connected"), ("consumer-0", "killed")])
@example([("consumer-0", "connected"), ("consumer-0", "stopped")])
@example([("consumer-0", "connected"), ("consumer-0", "connection_lost")])
@given(changes)
def test_all_are_connected_when_each_of_them_is(changes: list[tuple[str, str]]) -> None:
    """Ask all consumers after each change, which is the slow way.

    Each state lasts longer than ``STARVED_S``, so that a queue that delivers nothing counts as starved in it.
    """
    state_s = STARVED_S + 1
    end_s = len(changes) * state_s
    events = [worker(at * state_s, what, name) for at, (name, what) in enumerate(changes)]
    connected = {name: False for name, _ in changes if name.startswith("consumer")}
    whole: list[Period] = []
    for at, (name, what) in enumerate(changes):
        if name in connected:
            goes = what in {"connection_lost", "killed", "stopped"}
            connected[name] = what == "connected" or (connected[name] and not goes)
        if connected and all(connected.values()):
            whole.append((us(at * state_s), us((at + 1) * state_s)))
    found = starved(told([look(0, 9), look(end_s, 9)], [], events), (us(0), us(end_s)))
    assert list(found.get("q1", ())) == list(periods(times(whole)))
