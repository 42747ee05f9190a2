from __future__ import annotations

import re

import pytest

from rabbitmq_resilience.checkers import columns
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.flowing import load
from tests.invariants.literal import Row, apart, cluster, deliver, fault, history, phases, publish, queues
from tests.messages import Messages

NEVER = Outcome.NEVER_SENT
EVENTS = [cluster(), queues("q1"), phases(), fault(1, 40, cut=apart(["a1"], ["b1", "c1"]))]


def check(publishes: list[Row], deliveries: list[Row]) -> Finding:
    return NoLoss().check(history(publishes, deliveries, EVENTS))


def test_empty() -> None:
    finding = NoLoss().check(history())
    assert finding.verdict is Verdict.VALID
    assert finding.numbers["confirmed"] == 0


def test_sane() -> None:
    finding = check([publish(n) for n in range(5)], [deliver(n) for n in range(5)])
    assert finding.verdict is Verdict.VALID
    assert finding.numbers["confirmed"] == finding.numbers["received"] == 5


def test_pathological_confirmed_and_lost_names_the_message() -> None:
    finding = check([publish(0), publish(1, 25)], [deliver(0)])
    assert finding.verdict is Verdict.INVALID
    assert finding.numbers["lost"] == 1
    (example,) = finding.examples
    for part in ("publisher 0 sequence 1 to q1", "sent +25.000 s", "confirmed +25.005 s by a1", "phase chaos"):
        assert part in example
    assert "step 0 (partition)" in example


def test_where_no_confirm_is_awaited_none_is_reported_of(message: Messages) -> None:
    events = [*EVENTS, load(in_flight=None)]
    finding = NoLoss().check(history([publish(0), publish(1, 25)], [deliver(0)], events))
    message(finding.summary)
    assert (finding.numbers["confirmed"], finding.numbers["lost"]) == (2, 1)
    (example,) = finding.examples
    message(example)
    assert "+25.000 s" in example
    assert "a1" in example
    assert "chaos" in example
    assert "confirmed" not in example
    awaited = check([publish(0)], [])
    message(awaited.summary)
    assert (awaited.numbers["confirmed"], awaited.numbers["lost"]) == (1, 1)


def test_pathological_received_beyond_all_that_was_sent(message: Messages) -> None:
    finding = check([publish(0)], [deliver(0), deliver(7, 30, consumer=3)])
    assert finding.verdict is Verdict.INVALID
    assert finding.numbers["unexpected"] == 1
    message(finding.examples[0])
    assert "publisher 0 sequence 7" in finding.examples[0]
    assert "q1" in finding.examples[0]
    assert "consumer 3" in finding.examples[0]
    assert "+30.000 s" in finding.examples[0]


def test_pathological_received_from_a_publisher_that_never_was() -> None:
    finding = check([publish(0)], [deliver(0), deliver(0, publisher=9)])
    assert (finding.verdict, finding.numbers["unexpected"]) == (Verdict.INVALID, 1)


def test_pathological_received_a_message_that_never_left() -> None:
    finding = check([publish(0, outcome=Outcome.NEVER_SENT)], [deliver(0)])
    assert (finding.verdict, finding.numbers["unexpected"]) == (Verdict.INVALID, 1)


def test_pathological_broken_in_transit_and_so_lost() -> None:
    finding = check([publish(0), publish(1)], [deliver(0), deliver(0, intact=False)])
    assert finding.verdict is Verdict.INVALID
    assert (finding.numbers["broken"], finding.numbers["lost"]) == (1, 1)


def test_pathological_everything_lost_gives_ten_examples() -> None:
    finding = check([publish(n, publisher=n % 3) for n in range(60)], [])
    assert (finding.verdict, finding.numbers["lost"]) == (Verdict.INVALID, 60)
    assert len(finding.examples) == 10


def test_pathological_one_publishers_message_does_not_stand_for_anothers() -> None:
    finding = check([publish(0), publish(0, publisher=1)], [deliver(0), deliver(0, again=True)])
    assert (finding.verdict, finding.numbers["lost"]) == (Verdict.INVALID, 1)
    assert "publisher 1 sequence 0" in finding.examples[0]


def test_pathological_a_sequence_missing_from_the_record_was_not_attempted() -> None:
    finding = check([publish(0), publish(2)], [deliver(n) for n in range(3)])
    assert (finding.verdict, finding.numbers["unexpected"]) == (Verdict.INVALID, 1)


def test_what_never_left_and_comes_from_another_queue_is_unexpected_once() -> None:
    finding = check([publish(0), publish(2)], [deliver(0), deliver(1, queue=1), deliver(2)])
    assert (finding.numbers["unexpected"], finding.numbers["misrouted"]) == (1, 0)


def test_what_is_wrong_is_named_of_every_publisher() -> None:
    publishes = [publish(n, outcome=o, publisher=p) for p in (0, 1) for n, o in enumerate((Outcome.CONFIRMED, NEVER))]
    finding = check(publishes, [deliver(n, publisher=p) for p in (0, 1) for n in (1, 9)])
    assert sorted(" ".join(example.split()[:5]).rstrip(",") for example in finding.examples) == [
        "lost: publisher 0 sequence 0",
        "lost: publisher 1 sequence 0",
        "unexpected: publisher 0 sequence 1",
        "unexpected: publisher 0 sequence 9",
        "unexpected: publisher 1 sequence 1",
        "unexpected: publisher 1 sequence 9",
    ]


def test_during_a_fault_repeats_are_not_among_what_is_wrong() -> None:
    (example,) = check([publish(0), publish(1)], [deliver(0), deliver(0, 2)]).examples
    assert example.startswith("lost: ")


@pytest.mark.parametrize("rows_together", [1, 3, 1000])
def test_all_pieces_of_the_record_are_counted(rows_together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROWS_TOGETHER", rows_together)
    publishes = [publish(n, publisher=p) for n in range(5) for p in (0, 1)]
    deliveries = [deliver(n, publisher=p) for n in (0, 0, 1, 9) for p in (0, 1)]
    deliveries += [deliver(1, again=True, publisher=p) for p in (0, 1)]
    deliveries += [deliver(2, queue=1, publisher=p) for p in (0, 1)]
    deliveries += [deliver(3, intact=False, publisher=p) for p in (0, 1)]
    finding = NoLoss().check(history(publishes, deliveries, EVENTS, batch_rows=1))
    assert finding.numbers == {
        "attempted": 10,
        "confirmed": 10,
        "received": 4,  # what comes from another queue is owed still
        "lost": 6,
        "lost_permitted": 0,
        "unknown": 0,
        "recovered": 0,
        "nacked": 0,
        "nacked_received": 0,
        "returned": 0,
        "unexpected": 6,
        "broken": 2,
        "misrouted": 2,
        "duplicates_redelivered": 2,
        "duplicates_unmarked": 2,
        "duplicates_forbidden": 0,
    }


@pytest.mark.parametrize(
    ("outcome", "received", "number"),
    [
        (Outcome.UNKNOWN, True, "recovered"),
        (Outcome.UNKNOWN, False, "unknown"),
        (Outcome.NACKED, True, "nacked_received"),
        (Outcome.NACKED, False, "nacked"),
        (Outcome.RETURNED, False, "returned"),
    ],
)
def test_legal_and_reported(outcome: Outcome, received: bool, number: str) -> None:
    finding = check([publish(0, outcome=outcome)], [deliver(0)] if received else [])
    assert (finding.verdict, finding.numbers[number]) == (Verdict.VALID, 1)


@pytest.mark.parametrize(
    ("marks", "redelivered", "unmarked"),
    [([False, True], 1, 0), ([True, True], 1, 0), ([False, False], 0, 1), ([False, True, False, True], 2, 1)],
)
def test_duplicates_are_legal_and_split_by_their_mark(marks: list[bool], redelivered: int, unmarked: int) -> None:
    finding = check([publish(0)], [deliver(0, again=mark) for mark in marks])
    assert finding.verdict is Verdict.VALID
    assert finding.numbers["duplicates_redelivered"] == redelivered
    assert finding.numbers["duplicates_unmarked"] == unmarked


def test_pathological_comes_from_another_queue(message: Messages) -> None:
    finding = check([publish(0), publish(1)], [deliver(0), deliver(1, queue=1)])
    assert (finding.verdict, finding.numbers["misrouted"]) == (Verdict.INVALID, 1)
    assert finding.numbers["lost"] == 1, "it did not come from the queue that it was sent to"
    message(finding.examples[-1])


def test_what_goes_to_several_queues_is_owed_by_each() -> None:
    copies = [publish(n, queue=queue, lane=queue) for n in (0, 1) for queue in (0, 1)]
    finding = check(copies, [deliver(0), deliver(0, queue=1), deliver(1)])
    assert (finding.verdict, finding.numbers["confirmed"], finding.numbers["lost"]) == (Verdict.INVALID, 4, 1)
    (example,) = finding.examples
    assert "publisher 0 sequence 1 to queue 1" in example
    assert check(copies, [deliver(n, queue=queue) for n in (0, 1) for queue in (0, 1)]).verdict is Verdict.VALID
    twice = check(copies, [deliver(n, queue=queue) for n in (0, 1) for queue in (0, 1, 0)])
    assert (twice.numbers["duplicates_unmarked"], twice.numbers["received"]) == (2, 4)


def test_unmarked_duplicates_are_legal_during_a_fault_only(message: Messages) -> None:
    rows = [publish(0)], [deliver(0), deliver(0, 2)]
    assert check(*rows).verdict is Verdict.VALID
    quiet = NoLoss().check(history(*rows, [cluster(), queues("q1"), phases()]))
    assert quiet.verdict is Verdict.INVALID
    (example,) = quiet.examples
    message(example)
    assert "publisher 0 sequence 0" in example
    assert "q1" in example
    assert "consumer 0" in example
    assert "+2.000 s" in example
    beside = NoLoss().check(history(rows[0], [*rows[1], deliver(1, 3)], [cluster(), queues("q1"), phases()]))
    assert (beside.numbers["duplicates_unmarked"], beside.numbers["unexpected"]) == (1, 1)
    never_began = fault(20, 20, states=("skipped",))
    skipped = NoLoss().check(history(*rows, [cluster(), queues("q1"), phases(), never_began]))
    assert skipped.verdict is Verdict.INVALID


@pytest.mark.parametrize("rows_together", [1, 3, 1000])
def test_every_unmarked_repeat_is_named_wherever_it_comes(
    rows_together: int, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setattr(columns, "ROWS_TOGETHER", rows_together)
    publishes = [publish(n, publisher=p) for p in (0, 1) for n in range(6)]
    first = [deliver(n, 1 + n / 10, publisher=p) for n in range(5) for p in (0, 1)]
    again = [
        deliver(2, 2),
        deliver(4, 3, publisher=1, consumer=1),
        deliver(2, 4),
        deliver(5, 5),
        deliver(3, 6, again=True),
    ]
    strange = [deliver(1, 7, intact=False), deliver(99, 8)]
    events = [cluster(), queues("q1"), phases()]
    quiet = NoLoss().check(history(publishes, [*first, *again, *strange], events, batch_rows=1))
    named = [
        re.findall(r"publisher \d sequence \d", example)[0] for example in quiet.examples if "duplicate" in example
    ]
    message("\n".join(quiet.examples))
    assert sorted(named) == ["publisher 0 sequence 2", "publisher 0 sequence 2", "publisher 1 sequence 4"]
