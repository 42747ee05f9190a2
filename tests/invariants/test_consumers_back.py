"""What is said of queues whose consumers are back, or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.application_events import EXCLUSIVE, NOT_DURABLE
from tests.invariants.literal import event, fault
from tests.invariants.references.common import checked as found
from tests.invariants.test_applications import JOB, connection, record
from tests.messages import Messages


def consumers(*events: Any, up_s: float = 42) -> Any:
    return found("consumers", record(JOB, *events, up_s=up_s), within_s=20)


def test_consumers_that_come_and_go_are_not_counted_at_one_moment() -> None:
    """A consumer that connects for each batch is there when the faults begin, and not when one looks again."""
    batches = [connection(i, "job", i * 5 + 0.5, i * 5 + 4, queue="q1", end="lost") for i in range(2, 12)]
    batch = [connection(0, "job", 0, 4, queue="q1", end="lost"), connection(40, "job", 8.5, 12, queue="q1", end="lost")]
    assert consumers(*batch, *batches).verdict == Verdict.UNKNOWN
    steady = connection(50, "job", 0, queue="q1")
    assert consumers(*batch, *batches, steady).verdict == Verdict.VALID


def test_what_was_there_as_the_first_fault_began_counts() -> None:
    """The chaos phase begins at 10 s, and the fault at 20 s."""
    stays, leaves = connection(0, "job", 0, queue="q1"), connection(1, "job", 0, 15, queue="q1", end="closed")
    assert consumers(stays, leaves).verdict == Verdict.VALID
    lost = connection(0, "job", 12, 21, queue="q1", end="lost")
    assert consumers(lost).verdict == Verdict.INVALID
    assert consumers(lost, connection(1, "job", 0, queue="q2")).verdict == Verdict.INVALID


@pytest.mark.parametrize(
    ("why", "verdict"),
    [("its messages expire", Verdict.INVALID), (EXCLUSIVE, Verdict.VALID), (NOT_DURABLE, Verdict.VALID)],
)
def test_only_queues_that_may_go_by_themselves_need_no_consumers(why: str, verdict: Verdict) -> None:
    events = [connection(0, "job", 0, 21, queue="q1", end="lost"), connection(1, "job", 0, queue="q2")]
    assert consumers(*events, replace(JOB, skipped={"q1": why})).verdict == verdict


def test_nothing_is_back_after_a_fault_that_was_never_healed(message: Messages) -> None:
    finding = consumers(
        connection(0, "job", 0, queue="q1"),
        fault(30, 35, step=1, name="partition", states=["injecting", "injected", "proven"]),
    )
    assert finding.verdict == Verdict.UNKNOWN
    message(finding.summary)


def test_a_queue_that_lacks_one_of_two_consumers_is_named() -> None:
    finding = consumers(connection(0, "job", 0, queue="q1"), connection(1, "job", 0, 30, queue="q1", end="lost"))
    assert finding.verdict == Verdict.INVALID
    assert finding.summary.startswith("q1 had 2 consumers before the faults, and 1 at +")


@pytest.mark.parametrize(("up_s", "verdict"), [(44, Verdict.INVALID), (46, Verdict.VALID), (95, Verdict.UNKNOWN)])
def test_a_queue_needs_no_consumers_while_its_broker_starts(up_s: float, verdict: Verdict) -> None:
    back = connection(1, "job", 65, queue="q1") if up_s < 95 else []
    finding = consumers(connection(0, "job", 0, 21, queue="q1", end="lost"), back, up_s=up_s)
    assert finding.verdict == verdict, finding.summary


def test_a_queue_for_answers_need_not_come_back() -> None:
    """It is declared after the broker listed the queues, and the next one has another name."""
    fields = {"queue": "amq.gen-1", "durable": False, "exclusive": True, "auto_delete": False, "passive": False}
    declared = event(5, "wire", connection=1, what="queue_declared", channel=1, fields=fields)
    answers = connection(1, "job", 5, 30, queue="amq.gen-1", end="lost")
    assert consumers(connection(0, "job", 0, queue="q1"), declared, *answers).verdict == Verdict.VALID
    assert consumers(connection(0, "job", 0, queue="q1"), *answers).verdict == Verdict.INVALID
