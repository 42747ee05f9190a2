"""What is said of an application that writes what it commits, and of one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.workload.application_advice import advised
from tests.invariants.literal import cluster, event, fault, history, load, node_states, phases, queues
from tests.invariants.references.common import checked

NUMBERS = {"worked_on": 0, "committed": 9, "acknowledged": 9, "uncommitted": 0, "early": 0, "early_s_max": 0.0}
NUMBERS |= {"unmatched": 0, "unread": 0}
USE = {"delivered": 9, "automatic": 0, "acknowledged": 9, "returned": 0, "unsettled": 0, "unsettled_in": {}}
LOST = event(19.5, "uncommitted", process="job-0", queue="q1")
KILLED = event(20, "application", process="job-0", event="killed")


def use(**work: Any) -> dict[str, Any]:
    """Return the use by one process, which wrote something if ``work`` is stated."""
    return USE | ({"work": {**NUMBERS, "first_unread": "", **work}} if work else {})


def found(*events: Any, name: str = "committed", **work: Any) -> Finding:
    given = [cluster(), queues("q1"), phases(), load(10, None), fault(20, 22, name="kill_client"), node_states()]
    used = event(94, "application_use", processes={"job-0": use(**work)})
    finding: Finding = checked(name, history([], [], [*given, used, *events]))
    return finding


def test_a_message_that_was_lost_with_its_process_is_named() -> None:
    finding = found(LOST, KILLED, uncommitted=1, committed=8)
    assert finding.verdict == Verdict.INVALID
    assert finding.examples == (
        "job-0 acknowledged a message of q1 at +19.500 s, with no fault active, and was killed at +20.000 s; "
        "its program never committed it",
    )
    assert finding.summary == f"1 message was acknowledged, and never committed; {finding.examples[0]}"


@pytest.mark.parametrize("unclear", [{"unread": 1, "first_unread": "logs/job-0, line 3, is no JSON"}, {"unmatched": 1}])
def test_a_line_that_may_be_its_commit_makes_a_loss_uncertain(unclear: dict[str, Any]) -> None:
    """One line can hold one commit: of two messages one is lost in any case."""
    finding = found(LOST, uncommitted=1, **unclear)
    assert finding.verdict == Verdict.UNKNOWN
    assert finding.summary.endswith("never committed, and 1 line of the program may have said so")
    assert finding.examples[0].startswith(unclear.get("first_unread", "job-0 acknowledged"))
    assert found(LOST, LOST, uncommitted=2, **unclear).verdict == Verdict.INVALID


def test_lines_of_a_program_that_gets_no_messages_hide_no_loss() -> None:
    given = [cluster(), queues("q1"), phases(), load(10, None), fault(20, 22, name="kill_client"), node_states()]
    web = USE | {"delivered": 0, "work": {**NUMBERS, "committed": 0, "unread": 5, "first_unread": "logs/web-0, line 1"}}
    used = event(94, "application_use", processes={"web-0": web, "job-0": use(uncommitted=1)})
    assert checked("committed", history([], [], [*given, used, LOST])).verdict == Verdict.INVALID


def test_what_was_committed_late_is_reported() -> None:
    assert found(committed=9).verdict == Verdict.VALID
    finding = found(early=3)
    assert finding.verdict == Verdict.VALID
    assert finding.summary == "9 deliveries were acknowledged and committed, 3 of them in this order"


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ({}, "no process wrote what it committed"),
        ({"committed": 0, "acknowledged": 0, "worked_on": 9}, "no process wrote what it committed"),
        ({"committed": 0, "acknowledged": 0, "unread": 9}, "9 lines of the program say nothing"),
        ({"committed": 9, "unmatched": 9, "uncommitted": 9}, "names no message that it got"),
        ({"committed": 9, "acknowledged": 0}, "acknowledged no message that it has to commit"),
    ],
)
def test_nothing_is_said_of_what_the_program_does_not_write(work: dict[str, Any], said: str) -> None:
    finding = found(**work)
    assert finding.verdict == Verdict.UNKNOWN
    assert said in finding.summary


def test_that_acknowledgements_before_the_work_cannot_be_seen_is_said_of_silent_programs() -> None:
    assert found(name="settled").summary.endswith("cannot be seen on the wire, and the program wrote nothing of it")
    assert found(name="settled", committed=9).summary == "9 deliveries were acknowledged or rejected"


def test_advice_names_what_is_unsafe_and_what_could_not_be_read() -> None:
    work = use(uncommitted=1, early=3, early_s_max=0.25, unread=2, first_unread="logs/job-0, line 3, is no JSON")
    silent = {"plain": 0, "unroutable": 0, "unlimited": False}
    said = list(advised({"processes": {"job-0": work | silent}, "plain_lost": {}}))
    assert said == [
        "job-0 acknowledged 1 messages that its program never committed: they are lost; acknowledge after the work",
        "job-0 acknowledged 3 messages before they were committed, up to 0.25 s: "
        "if it dies meanwhile, they are lost; acknowledge after the work",
        "job-0 wrote 2 lines that say nothing of its work; logs/job-0, line 3, is no JSON",
    ]
    assert not list(advised({"processes": {"job-0": use(committed=9) | silent}, "plain_lost": {}}))
