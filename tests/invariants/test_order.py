from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.checkers import columns, order
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import Row, cluster, deliver, history, phases, publish, queues
from tests.messages import Messages

EVENTS = [cluster(), queues("q1", "q2"), phases()]
TEN = [publish(n) for n in range(10)]


def check(deliveries: list[Row], publishes: list[Row] = TEN) -> Finding:
    return Order().check(history(publishes, deliveries, EVENTS))


def in_turn(*sequences: int, start_s: float = 1, **fields: Any) -> list[Row]:
    return [deliver(n, start_s + i / 1000, **fields) for i, n in enumerate(sequences)]


def test_empty() -> None:
    assert Order().check(history()).verdict is Verdict.VALID


def test_sane() -> None:
    finding = check(in_turn(*range(10)))
    assert (finding.verdict, finding.numbers["queues_judged"]) == (Verdict.VALID, 1)


def test_sane_publishers_interleave() -> None:
    publishes = [publish(n, publisher=p) for p in (0, 1) for n in range(4)]
    deliveries = [deliver(n, 1 + n, publisher=p) for n in range(4) for p in (1, 0)]
    assert check(deliveries, publishes).verdict is Verdict.VALID


def test_sane_one_publisher_in_two_queues() -> None:
    deliveries = [*in_turn(1, 3, queue=1, consumer=1), *in_turn(0, 2, 4, start_s=2)]
    assert check(deliveries).verdict is Verdict.VALID


def test_pathological_overtaken_names_the_message(message: Messages) -> None:
    finding = check(in_turn(0, 1, 3, 2, 4))
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 1)
    message(finding.examples[0])
    assert "sequence 2" in finding.examples[0]
    assert "after sequence 3" in finding.examples[0]
    assert "q1" in finding.examples[0]
    assert "+1.003 s" in finding.examples[0]
    assert "consumer 0" in finding.examples[0]


def test_pathological_reversed() -> None:
    finding = check(in_turn(*reversed(range(10))))
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 9)


def test_pathological_overtaken_long_ago() -> None:
    deliveries = in_turn(*(n for n in range(2000) if n != 5), 5)
    finding = Order().check(history([publish(n) for n in range(2000)], deliveries, EVENTS, batch_rows=7))
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 1)


@pytest.mark.parametrize("rows_together", [1, 2, 3, 1000])
def test_what_came_before_is_known_wherever_the_pieces_of_the_record_end(
    rows_together: int, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setattr(columns, "ROWS_TOGETHER", rows_together)
    publishes = [publish(n, publisher=p) for p in (0, 1) for n in range(10)]
    broken = [deliver(9, 0.5, publisher=p, intact=False) for p in (0, 1, 0)]
    deliveries = [*broken, *in_turn(0, 5, 6, 1, 7, 2, publisher=1), *in_turn(0, 1, 2, start_s=2)]
    finding = Order().check(history(publishes, deliveries, EVENTS, batch_rows=1))
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 2)
    for example, early, late in zip(finding.examples, (1, 2), (6, 7), strict=True):
        assert f"publisher 1 sequence {early} " in example
        assert f"after sequence {late}" in example
        message(example)


def test_what_was_overtaken_in_an_earlier_piece_of_the_record_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROWS_TOGETHER", 3)
    finding = Order().check(history(TEN, in_turn(0, 2, 1, 3, 4, 5), EVENTS, batch_rows=1))
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 1)


def test_a_message_that_is_overtaken_twice_in_one_moment_counts_once() -> None:
    finding = check([deliver(0, 1), deliver(2, 2), deliver(1, 3), deliver(1, 3)])
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 1)


def test_a_broken_delivery_hides_none_of_another_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first piece of the record ends before it."""
    monkeypatch.setattr(columns, "ROWS_TOGETHER", 5)
    publishes = [publish(n, publisher=p) for p in (0, 1) for n in range(3)]
    first = [*in_turn(0, 2, 1), *in_turn(0, 2, start_s=2, publisher=1)]
    second = [deliver(0, 3, intact=False), deliver(1, 3, publisher=1)]
    assert Order().check(history(publishes, [*first, *second], EVENTS, batch_rows=1)).numbers["overtaken"] == 2


def test_legal_duplicate_in_the_same_moment() -> None:
    twice = [deliver(1, 1.5), deliver(1, 1.5)]
    assert check([deliver(0, 1), *twice, deliver(2, 2)]).verdict is Verdict.VALID
    assert check([deliver(0, 1), *twice, deliver(3, 2), deliver(2, 3)]).numbers["overtaken"] == 1


def test_pathological_overtaken_and_later_received_again_counts_once() -> None:
    finding = check([*in_turn(0, 2, 1), *in_turn(1, start_s=2)])
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 1)


def test_pathological_overtaken_across_a_takeover(message: Messages) -> None:
    finding = check([*in_turn(0, 4, start_s=5, consumer=1), *in_turn(1, 2, 5, consumer=0)])
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 2)
    message(finding.examples[0])
    assert "consumer 1" in finding.examples[0]
    assert "after sequence 5" in finding.examples[0]


def test_pathological_only_one_of_two_publishers() -> None:
    publishes = [publish(n, publisher=p) for p in (0, 1) for n in range(3)]
    finding = check([*in_turn(0, 1, 2), *in_turn(0, 2, 1, start_s=2, publisher=1)], publishes)
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 1)


def test_pathological_a_broken_message_excuses_nothing() -> None:
    broken = deliver(0, 0.5, intact=False)
    assert check([broken, *in_turn(1, 0)]).verdict is Verdict.INVALID


def test_legal_redelivered() -> None:
    assert check([*in_turn(0, 3, 4), deliver(1, 2, again=True), deliver(2, 2.1, again=True)]).verdict is Verdict.VALID


def test_legal_duplicate_without_the_mark() -> None:
    assert check([*in_turn(0, 1, 2, 3), *in_turn(1, 2, 3, 4, start_s=2)]).verdict is Verdict.VALID


def test_legal_duplicate_of_the_second_publishers_message() -> None:
    publishes = [publish(n, publisher=1) for n in range(5)]
    deliveries = [*in_turn(0, 1, 2, 3, publisher=1), *in_turn(1, 2, 3, 4, start_s=2, publisher=1)]
    assert check(deliveries, publishes).verdict is Verdict.VALID


def test_legal_duplicate_of_what_another_consumer_received_first() -> None:
    deliveries = [*in_turn(1, 2, 3, start_s=5, consumer=1), *in_turn(0, 1, 2, consumer=0)]
    assert check(deliveries).verdict is Verdict.VALID


def test_legal_unknown_outcome_waited_in_a_lost_connection() -> None:
    publishes = [publish(0), publish(1, outcome=Outcome.UNKNOWN), publish(2)]
    assert check(in_turn(0, 2, 1), publishes).verdict is Verdict.VALID


def test_takeover_in_order_is_judged_whatever_the_order_of_streams() -> None:
    finding = check([*in_turn(5, 6, start_s=5, consumer=1), *in_turn(0, 1, 2, consumer=7)])
    assert (finding.verdict, finding.numbers["queues_judged"]) == (Verdict.VALID, 1)


def test_shared_queues_are_judged_by_the_time_of_receipt_where_that_is_demanded(message: Messages) -> None:
    publishes = [publish(n, publisher=p) for p in (0, 1) for n in range(6)]
    other = in_turn(0, 1, 2, publisher=1, start_s=3)
    shared = [*in_turn(0, 2, 4, start_s=1), deliver(1, 1.0005, consumer=1), deliver(3, 1.0025, consumer=1)]
    demanding = Order(shared_queues="judged")
    finding = demanding.check(history(publishes, [*shared, *other], EVENTS))
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 1)
    assert (finding.numbers["queues_judged"], finding.numbers["queues_shared"]) == (1, 0)
    message(finding.examples[0])
    assert "publisher 0 sequence 3" in finding.examples[0]
    assert "after sequence 4" in finding.examples[0]
    assert "q1" in finding.examples[0]
    assert "+1.002 s" in finding.examples[0]
    assert "consumer 1" in finding.examples[0]
    in_order = [*in_turn(0, 2, 4), *(deliver(n, 1 + n / 2000, consumer=1) for n in (1, 3))]
    assert demanding.check(history(publishes, in_order, EVENTS)).verdict is Verdict.VALID
    again = [*in_order, deliver(0, 2, consumer=1, again=True), deliver(5, 1.5, intact=False), deliver(2, 3, consumer=1)]
    assert demanding.check(history(publishes, again, EVENTS)).verdict is Verdict.VALID


def test_where_shared_queues_are_judged_the_others_are_as_always_and_what_is_broken_shows_nothing(
    message: Messages,
) -> None:
    """The second queue is shared; a turn in the first one begins with what the consumer before had not received."""
    publishes = [publish(n) for n in range(12)]
    shared = [deliver(n, 1 + n / 100, queue=1, consumer=n % 4 // 2) for n in (1, 3, 5, 7)]
    broken = deliver(11, 1.001, queue=1, consumer=1, intact=False)
    alone = [*in_turn(0, 2, 4), *in_turn(8, 6, start_s=2)]
    finding = Order(shared_queues="judged").check(history(publishes, [*shared, broken, *alone], EVENTS))
    assert (finding.numbers["queues_judged"], finding.numbers["overtaken"]) == (2, 1)
    message(finding.examples[0])
    assert "publisher 0 sequence 6" in finding.examples[0]
    assert "q1" in finding.examples[0]


def test_shared_queue_is_not_judged_and_named(message: Messages) -> None:
    shared = [*in_turn(0, 2, 4), *in_turn(1, 3, 5, consumer=1)]
    finding = check(shared)
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.numbers == {"queues_judged": 0, "queues_shared": 1, "overtaken": 0, "overtaken_permitted": 0}
    message(finding.summary)
    assert "q1" in finding.summary
    both = [*shared, *in_turn(6, 8, queue=1), *in_turn(7, 9, queue=1, consumer=1)]
    shared_both = check(both)
    message(shared_both.summary)
    assert "q1" in shared_both.summary
    assert "q2" in shared_both.summary
    beside = check([*shared, *in_turn(6, 7, queue=1)])
    assert (beside.verdict, beside.numbers["queues_shared"]) == (Verdict.VALID, 1)
    message(beside.summary)


def test_what_goes_to_several_queues_has_an_order_in_each() -> None:
    """It came out of one queue in order, and before it came out of the other one late."""
    published = [publish(n, queue=queue, lane=queue) for n in (0, 1) for queue in (0, 1)]
    events = [cluster(), queues("q1", "q2"), phases()]
    late = [deliver(1, 3), deliver(0, 4)]
    in_order = [deliver(0, 1, queue=1), deliver(1, 2, queue=1)]
    finding = Order().check(history(published, [*in_order, *late], events))
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 1)
    both = [deliver(1, 5, queue=1), deliver(0, 6, queue=1)]
    assert Order().check(history(published, [*late, *both], events)).numbers["overtaken"] == 2


@pytest.mark.parametrize("at_once", [1, 4, 9, 1000])
def test_shared_queues_are_judged_the_same_however_few_at_once(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(order, "SORTED_MAX", at_once)
    publishes = [publish(n, queue=n % 3) for n in range(18)]
    shared = [deliver(n, 1 + n / 100, queue=n % 3, consumer=n // 3 % 2) for n in range(18)]
    finding = Order(shared_queues="judged").check(history(publishes, shared, EVENTS))
    assert (finding.verdict, finding.numbers["queues_judged"]) == (Verdict.VALID, 3)
    late = [d for d in shared if d["sequence"] not in (4, 8)] + [deliver(n, 2, queue=n % 3) for n in (4, 8)]
    finding = Order(shared_queues="judged").check(history(publishes, late, EVENTS))
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 2)


def test_a_second_receipt_that_is_read_first_hides_no_first_one() -> None:
    """A hundred messages in reverse to one consumer, and again, unmarked, to another, whose file is read first."""
    publishes = [publish(n) for n in range(100)]
    reverse = range(99, -1, -1)
    again = in_turn(*reverse, start_s=50, consumer=0)
    finding = check([*again, *in_turn(*reverse, consumer=1)], publishes)
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 99)


@pytest.mark.parametrize(("first", "overtaken"), [((0, 1, 2), 0), ((7, 8, 9), 3)])
def test_files_are_judged_by_the_time_of_receipt(first: tuple[int, ...], overtaken: int) -> None:
    """Two processes of one consumer, one after the other; the file of the second is read first."""
    rows = [*in_turn(3, 4, 5, start_s=50), *in_turn(*first)]
    assert check(rows).numbers["overtaken"] == overtaken
