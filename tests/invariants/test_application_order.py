"""What is said of the order in which an application's messages came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from tests.invariants.literal import cluster, event, fault, history, load, node_states, phases, queues, us
from tests.invariants.references.common import checked

SOUND = {"judged": 9, "last_us": us(60)}
OVERTAKEN = event(25, "overtaken", process="job-0", queue="q1", publisher="web-0", sent_us=us(3), later_us=us(4))


def found(*events: Any, mode: str = "pause_minority", **order: Mapping[str, int]) -> Finding:
    given = [cluster(mode=mode), queues("q1"), phases(), load(10, None), fault(20, 40, down=["b1"]), node_states()]
    use = event(94, "application_use", processes={}, order=order)
    finding: Finding = checked("order", history([], [], [*given, use, *events]))
    return finding


def test_a_message_that_was_overtaken_is_named() -> None:
    finding = found(OVERTAKEN, q1=SOUND)
    assert finding.verdict == Verdict.INVALID
    assert finding.summary == f"1 message was overtaken in 1 queue; {finding.examples[0]}"
    assert finding.examples[0].startswith(
        "a message that web-0 sent at +3.000 s came out of q1 to job-0 at +25.000 s, "
        "after one that it sent at +4.000 s on the same channel, during step 0"
    )


def test_two_sides_of_a_split_have_no_common_order() -> None:
    finding = found(OVERTAKEN, mode="ignore", q1=SOUND)
    assert finding.verdict == Verdict.UNKNOWN
    assert "two sides of a split" in finding.summary


def test_queues_with_several_consumers_or_equal_messages_are_named() -> None:
    finding = found(q1=SOUND, q2={"shared": 3}, q3={"equal": 2}, q4={"shared": 1})
    assert finding.verdict == Verdict.VALID
    assert finding.summary == (
        "0 messages were overtaken in 1 queue; not judged: more than one consumer at a time read from q2, q4; "
        "messages of q3 are equal to others, as they have no message_id or share it"
    )
    assert finding.coverage is not None
    assert (finding.coverage.judged, finding.coverage.demanded) == (9, 15)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({}, "no message came whose order is known"),
        ({"q1": {"shared": 3}}, "more than one consumer at a time read from q1"),
        ({"q1": {"judged": 3, "last_us": us(10)}}, "no message was judged after step 0"),
    ],
)
def test_nothing_is_said_where_no_order_was_seen(order: dict[str, Any], said: str) -> None:
    finding = found(**order)
    assert finding.verdict == Verdict.UNKNOWN
    assert finding.summary.startswith(said)
