"""Where messages have priorities, those of one priority alone are in order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers import columns
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.draws import Priorities
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import Row, cluster, deliver, history, load, phases, publish, queues
from tests.messages import Messages

PRIORITIES = (0, 0, 9)
EVENTS = [cluster(), queues("q1", kind="classic"), phases(), load(10, 100, priorities=PRIORITIES)]
#: Of the first messages of publisher 0.
DRAWN = Priorities(PRIORITIES).of(0, np.arange(40)).tolist()
HIGH = [n for n, priority in enumerate(DRAWN) if priority]
LOW = [n for n, priority in enumerate(DRAWN) if not priority]
ALL = [publish(n) for n in range(40)]


def in_turn(sequences: Sequence[int], *, consumer: int = 0, start_s: float = 1) -> list[Row]:
    return [deliver(n, start_s + i / 1000, consumer=consumer) for i, n in enumerate(sequences)]


def check(deliveries: list[Row], publishes: list[Row] = ALL, *, shared_queues: str = "named") -> Finding:
    return Order.model_validate({"shared_queues": shared_queues}).check(history(publishes, deliveries, EVENTS))


def test_a_higher_one_may_overtake_all_that_are_lower() -> None:
    assert len(HIGH) > 3 and len(LOW) > 3
    assert check(in_turn([*HIGH, *LOW])).verdict is Verdict.VALID
    assert check(in_turn([*LOW, *HIGH])).verdict is Verdict.VALID


@pytest.mark.parametrize("of", [HIGH, LOW], ids=["high", "low"])
def test_one_that_overtook_its_equal_is_reported(of: list[int], message: Messages) -> None:
    others = [n for n in range(40) if n not in of]
    finding = check(in_turn([of[1], of[0], *of[2:], *others]))
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 1)
    assert f"publisher 0 sequence {of[0]} " in finding.examples[0]
    assert f"after sequence {of[1]}" in finding.examples[0]
    message(finding.examples[0])


def test_it_is_known_what_a_consumer_before_had_received_of_each_priority() -> None:
    first = in_turn([*HIGH[2:], *LOW[:3]])
    assert check([*first, *in_turn(LOW[3:], consumer=1, start_s=2)]).verdict is Verdict.VALID
    finding = check([*first, *in_turn([HIGH[0], *LOW[3:]], consumer=1, start_s=2)])
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 1)


def test_a_record_that_reports_no_priorities_is_judged_as_before() -> None:
    told = history(ALL, in_turn([*HIGH, *LOW]), [*EVENTS[:3], load(10, 100)])
    assert Order().check(told).verdict is Verdict.INVALID


def test_priorities_are_no_loss() -> None:
    finding = NoLoss().check(history(ALL, in_turn([*HIGH, *LOW]), EVENTS))
    assert (finding.verdict, finding.numbers["confirmed"]) == (Verdict.VALID, 40)


# A second way: each delivery against all before it.

ROW = st.tuples(st.integers(0, 1), st.integers(0, 19), st.booleans())


def overtaken(rows: Sequence[tuple[int, int, bool]], unknown: set[tuple[int, int]]) -> int:
    """Of (publisher, sequence, redelivered) in the order of receipt."""

    def priority(publisher: int, sequence: int) -> int:
        return int(Priorities(PRIORITIES).of(publisher, np.array([sequence]))[0])

    count = 0
    for place, (publisher, sequence, again) in enumerate(rows):
        before = [row[:2] for row in rows[:place]]
        higher = [
            n for p, n in before if p == publisher and n > sequence and priority(p, n) == priority(publisher, sequence)
        ]
        fresh = not again and (publisher, sequence) not in before and (publisher, sequence) not in unknown
        count += bool(higher) and fresh
    return count


@given(
    st.lists(ROW, min_size=1, max_size=25),
    st.integers(0, 25),
    st.sets(st.tuples(st.integers(0, 1), st.integers(0, 19)), max_size=3),
    st.sampled_from(["named", "judged"]),
    st.tuples(st.integers(1, 9), st.randoms(use_true_random=False)),
)
def test_each_delivery_against_all_before_it_shows_the_same(
    rows: list[tuple[int, int, bool]],
    second_from: int,
    unknown: set[tuple[int, int]],
    shared_queues: str,
    reading: tuple[int, Random],
) -> None:
    """From some row on another consumer goes on; or both take turns, where that is judged. The record holds the rows in
    any order."""
    publishes = [
        publish(n, publisher=p, outcome=Outcome.UNKNOWN if (p, n) in unknown else Outcome.CONFIRMED)
        for p in (0, 1)
        for n in range(20)
    ]
    deliveries = [
        deliver(
            sequence,
            1 + place,
            publisher=publisher,
            again=again,
            consumer=place % 2 if shared_queues == "judged" else int(place >= second_from),
        )
        for place, (publisher, sequence, again) in enumerate(rows)
    ]
    rows_together, random = reading
    random.shuffle(deliveries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "ROWS_TOGETHER", rows_together)
        finding = check(deliveries, publishes, shared_queues=shared_queues)
    expected = overtaken(rows, unknown)
    assert finding.numbers["overtaken"] == expected
    assert finding.verdict is (Verdict.INVALID if expected else Verdict.VALID)
