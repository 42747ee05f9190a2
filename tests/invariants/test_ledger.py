"""The columns and bitmaps against slow, plain Python that says the same in its own way."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers import columns
from rabbitmq_resilience.checkers.columns import grouped, pieces
from rabbitmq_resilience.checkers.message_ledger import ledger_of
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.checkers.traffic import TICK_US
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import ORIGIN_US, Row, cluster, deliver, history, phases, publish, queues, us

EVENTS = [cluster(), queues("q1", "q2", "q3"), phases()]
few = st.integers(0, 1)
sequences = st.integers(0, 30)


#: Each message goes to one or to several of three queues; those that share one have different lanes.
ROUTES = ((0,), (1,), (0, 1), (2, 0), (1, 2, 0))
LANES = (0, 1, 2)


@st.composite
def published(draw: st.DrawFn) -> list[Row]:
    keys = draw(st.lists(st.tuples(few, sequences), unique=True, max_size=40))
    rows = []
    for publisher, sequence in keys:
        at_s, outcome = draw(st.floats(0, 95)), draw(st.sampled_from(Outcome))
        rows += [
            publish(sequence, at_s, outcome, publisher=publisher, queue=queue, lane=LANES[queue])
            for queue in draw(st.sampled_from(ROUTES))
        ]
    return rows


@st.composite
def delivered(draw: st.DrawFn) -> list[Row]:
    """Deliveries of up to two consumers, each stream in the order of its own times."""
    row = st.tuples(few, few, st.integers(0, 2), sequences, st.booleans(), st.integers(0, 19))
    rows = draw(st.lists(row, max_size=60))
    streams = [
        deliver(n, 1 + i, again=again, consumer=consumer, publisher=publisher, queue=queue, intact=luck > 0)
        for i, (consumer, publisher, queue, n, again, luck) in enumerate(rows)
    ]
    return sorted(streams, key=lambda row: int(row["consumer"]))


@given(published(), delivered(), st.integers(1, 20))
def test_no_loss_says_what_plain_python_says(publishes: list[Row], deliveries: list[Row], batch_rows: int) -> None:
    finding = NoLoss().check(history(publishes, deliveries, EVENTS, batch_rows=batch_rows))
    expected = plain_counts(publishes, deliveries)
    assert {name: finding.numbers[name] for name in expected} == expected
    wrong = ("lost", "unexpected", "duplicates_unmarked")  # the last because there was no fault
    assert (finding.verdict is Verdict.INVALID) == any(expected[name] for name in wrong)
    assert bool(finding.examples) == (finding.verdict is Verdict.INVALID)


def plain_counts(publishes: Iterable[Row], deliveries: Iterable[Row]) -> dict[str, int]:
    """What is owed is a message and a queue."""
    outcomes = {(row["publisher"], row["sequence"], row["queue"]): row["outcome"] for row in publishes}
    attempted = {key for key, outcome in outcomes.items() if outcome != Outcome.NEVER_SENT}
    messages = {key[:2] for key in attempted}
    copies: dict[tuple[int, int, int], list[bool]] = defaultdict(list)
    strange = broken = misrouted = 0
    for row in deliveries:
        key = row["publisher"], row["sequence"], row["queue"]
        if not row["intact"]:
            broken += 1
        elif key[:2] not in messages:
            strange += 1
        elif key not in attempted:
            misrouted += 1
        else:
            copies[key].append(row["redelivered"])
    unmarked = sum(max(0, marks.count(False) - 1) for marks in copies.values())
    by_outcome = Counter((outcome, key in copies) for key, outcome in outcomes.items())
    return {
        "attempted": len(attempted),
        "confirmed": by_outcome[Outcome.CONFIRMED, False] + by_outcome[Outcome.CONFIRMED, True],
        "lost": by_outcome[Outcome.CONFIRMED, False],
        "misrouted": misrouted,
        "unexpected": strange + broken + misrouted,
        "received": len(copies),
        "recovered": by_outcome[Outcome.UNKNOWN, True],
        "nacked_received": by_outcome[Outcome.NACKED, True],
        "duplicates_unmarked": unmarked,
        "duplicates_redelivered": sum(len(marks) - 1 for marks in copies.values()) - unmarked,
    }


@given(published(), delivered(), st.integers(1, 20))
def test_order_says_what_plain_python_says(publishes: list[Row], deliveries: list[Row], batch_rows: int) -> None:
    finding = Order().check(history(publishes, deliveries, EVENTS, batch_rows=batch_rows))
    judged, overtaken = plain_order(publishes, deliveries)
    assert finding.numbers["queues_judged"] == judged
    assert finding.numbers["overtaken"] == overtaken


def plain_order(publishes: Iterable[Row], deliveries: Iterable[Row]) -> tuple[int, int]:
    outcomes = {(row["publisher"], row["sequence"]): row["outcome"] for row in publishes}
    whole = sorted((row for row in deliveries if row["intact"]), key=lambda row: int(row["received_us"]))
    judged = overtaken = 0
    received: set[tuple[int, int, int]] = set()
    highest: dict[tuple[int, int], int] = {}
    sole = {queue for queue in (0, 1, 2) if joins_in_order([row["consumer"] for row in whole if row["queue"] == queue])}
    judged = len(sole)
    for row in whole:
        message, lane = (row["publisher"], row["sequence"], row["queue"]), (row["queue"], row["publisher"])
        back = row["sequence"] < highest.get(lane, -1) and row["queue"] in sole
        confirmed = outcomes.get(message[:2]) == Outcome.CONFIRMED
        overtaken += back and confirmed and not row["redelivered"] and message not in received
        received.add(message)
        highest[lane] = max(highest.get(lane, -1), row["sequence"])
    return judged, overtaken


def joins_in_order(consumers: list[Any]) -> bool:
    changes = sum(a != b for a, b in itertools.pairwise(consumers))
    return bool(consumers) and changes == len(set(consumers)) - 1


@given(published(), st.integers(1, 20))
def test_confirms_are_counted_by_queue_and_tick(publishes: list[Row], batch_rows: int) -> None:
    ledger = ledger_of(history(publishes, (), EVENTS, batch_rows=batch_rows))
    counted = {
        (queue, tick): int(counts[tick]) for queue, counts in ledger.confirms.items() for tick in np.flatnonzero(counts)
    }
    assert counted == Counter(
        (row["queue"], (row["outcome_us"] - ORIGIN_US) // TICK_US)
        for row in publishes
        if row["outcome"] == Outcome.CONFIRMED and row["outcome_us"] < us(90)
    )


@pytest.mark.parametrize("rows_together", [1, 1000])
def test_confirms_are_counted_from_the_start_on_and_no_more_at_the_end(
    rows_together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "ROWS_TOGETHER", rows_together)
    moments = [0, 0.019, 0.02, 89.999, 90]
    publishes = [publish(n) | {"outcome_us": us(at_s)} for n, at_s in enumerate(moments)]
    (counts,) = ledger_of(history(publishes, (), EVENTS, batch_rows=1)).confirms.values()
    assert {int(tick): int(counts[tick]) for tick in np.flatnonzero(counts)} == {0: 2, 1: 1, 4499: 1}


def test_a_message_takes_seven_bytes() -> None:
    (messages,) = ledger_of(history([publish(n) for n in range(8)])).messages.values()
    (lane,) = messages.lanes
    assert sum(column.itemsize for column in (messages.outcome, lane.queue, lane.received, lane.fresh)) == 7


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 65_535), st.integers(0, 2)), min_size=1))
def test_groups_are_complete_and_keep_their_order(rows: list[tuple[int, int, int]]) -> None:
    keys = [np.array(column, np.uint16) for column in zip(*rows, strict=True)]
    expected: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        expected[row].append(i)
    places = np.arange(len(rows))
    assert {key: places[chosen].tolist() for key, chosen in grouped(*keys)} == expected


def test_pieces_leave_out_nothing_and_are_never_empty() -> None:
    rows = [publish(n) for n in range(25)]
    batches = list(history(rows, batch_rows=4).publishes())
    assert np.concatenate([sequence for (sequence,) in pieces(batches, "sequence")]).tolist() == list(range(25))
    assert list(pieces([], "sequence")) == []


def test_pieces_end_with_the_batch_that_fills_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROWS_TOGETHER", 8)
    batches = history([publish(n) for n in range(25)], batch_rows=4).publishes()
    assert [len(sequence) for (sequence,) in pieces(batches, "sequence")] == [8, 8, 8, 1]


def test_groups_of_keys_whose_product_is_larger_than_a_number_are_kept_apart() -> None:
    top = 2**32 - 1
    keys = [np.array(column, np.uint32) for column in ([0, top, 0, top], [top, top, 0, top], [top, 0, top, 0])]
    assert [key for key, _ in grouped(*keys)] == [(0, 0, top), (0, top, top), (top, top, 0)]


def test_groups_of_large_keys_are_kept_apart() -> None:
    keys = np.array([0, 1, 0], np.uint16), np.array([0, 0, 65_535], np.uint16)
    assert [key for key, _ in grouped(*keys)] == [(0, 0), (0, 65_535), (1, 0)]


def test_a_ledger_is_built_once_for_a_history() -> None:
    record = history([publish(0)])
    assert ledger_of(record) is ledger_of(record)
    assert ledger_of(history([publish(0)])) is not ledger_of(record)
