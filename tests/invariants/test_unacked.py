from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.checkers.unacked import Unacked
from rabbitmq_resilience.checkers.verdict import Coverage, Finding, Verdict
from tests.invariants.literal import PHASES, Row, cluster, event, history, node_states, phases, queues, told
from tests.messages import Messages


def check(metrics: list[list[Row]], *events: Any) -> Finding:
    whole = [cluster(), queues("q1", "q2"), phases(), node_states()]
    return Unacked().check(history((), (), [*whole, *events], metrics=metrics))


def unacked(queue: str, value: Any, *, node: str = "a1", end_s: int = 96) -> list[Row]:
    return told("unacked", node, value, queue=queue, end_s=end_s)


CALM = unacked("q2", 0, node="b1")


def test_empty() -> None:
    assert Unacked().check(history()).verdict is Verdict.UNKNOWN
    assert check([]).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("lacking", ["drain", "end"])
def test_unknown_without_the_drain_and_its_end(lacking: str) -> None:
    told_phases = phases(**{name: at_s for name, at_s in PHASES.items() if name != lacking})
    events = [cluster(), queues("q1"), told_phases, node_states()]
    assert Unacked().check(history((), (), events, metrics=[unacked("q1", 0)])).verdict is Verdict.UNKNOWN
    assert Unacked().check(history((), (), [cluster(), phases(), node_states()])).verdict is Verdict.UNKNOWN


def test_sane_the_last_word_counts() -> None:
    finding = check([CALM, unacked("q1", lambda at: 3 if at < 95 else 0)])
    assert (finding.verdict, finding.numbers["unacked_at_end"]) == (Verdict.VALID, 0)
    assert check([CALM, told("unacked", "a1", 0, queue="q1", start_s=95)]).verdict is Verdict.VALID


def test_sane() -> None:
    finding = check([CALM, unacked("q1", lambda at: 50 if at < 91 else 0)])
    assert (finding.verdict, finding.numbers["unacked_max"]) == (Verdict.VALID, 50)


def test_sane_the_latest_leader_knows() -> None:
    assert check([CALM, unacked("q1", 7, end_s=92), unacked("q1", 0, node="c1")]).verdict is Verdict.VALID


def test_pathological(message: Messages) -> None:
    finding = check([CALM, unacked("q1", lambda at: 50 if at < 91 else 3)])
    assert (finding.verdict, finding.numbers["unacked_at_end"]) == (Verdict.INVALID, 3)
    message(finding.summary)
    assert "q1" in finding.summary
    assert len(finding.examples) == 1


def test_pathological_what_the_broker_takes_back_from_consumers_that_end() -> None:
    left = [CALM, unacked("q1", lambda at: 3 if at < 94 else 0)]
    gone = event(93.5, "worker", worker="consumer-0", event="stopped", node="a1", detail="")
    assert check(left).verdict is Verdict.VALID
    assert check(left, gone).verdict is Verdict.INVALID


def test_unknown_where_no_one_reports_a_queue(message: Messages) -> None:
    finding = check([CALM, unacked("q1", 0, end_s=80)])
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "q1" in finding.summary


def test_unknown_where_the_last_word_is_of_before_the_drain_was_over() -> None:
    drained = event(93, "drain", complete=True)
    for value in (0, 3):
        finding = check([CALM, unacked("q1", value, end_s=92)], drained)
        assert (finding.verdict, finding.coverage) == (Verdict.UNKNOWN, Coverage(1, 2, "queues"))
    assert check([CALM, unacked("q1", 0, end_s=95)], drained).verdict is Verdict.VALID


def test_unknown_where_no_one_reported_for_long() -> None:
    whole = [cluster(), queues("q1"), phases(steady=0, chaos=10, recovery=20, drain=30, end=95), node_states()]
    for end_s, verdict in ((80, Verdict.UNKNOWN), (81, Verdict.VALID)):
        judged = history((), (), whole, metrics=[unacked("q1", 0, end_s=end_s)])
        assert Unacked().check(judged).verdict is verdict


def led(queue: str, *leaders: tuple[float, str]) -> list[Any]:
    return [event(at, "sample", node="", queues={queue: {"unacked": 0, "leader": node}}) for at, node in leaders]


def test_what_a_former_leader_goes_on_reporting_does_not_count() -> None:
    """4.3.6, one run: b1 had led q1 and reported 2 to the end; a1 led it for the last 40 s and reported 0."""
    reported = [CALM, unacked("q1", 0), unacked("q1", 2, node="b1")]
    assert check(reported, led("q1", (40, "b1"), (82, "a1"), (94, "a1"))).verdict is Verdict.VALID
    assert check(reported, led("q1", (40, "a1"), (82, "b1"), (94, "b1"))).verdict is Verdict.INVALID


def test_a_leader_that_fell_silent_is_not_outvoted_by_others(message: Messages) -> None:
    """It reported until 92 s, and the drain was over at 91 s."""
    led_to_the_end = led("q1", (84, "a1"), (94, "a1"))
    silent = [CALM, unacked("q1", 3, end_s=93), unacked("q1", 0, node="b1")]
    finding = check(silent, *led_to_the_end)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert (
        check([CALM, unacked("q1", 0, end_s=93), unacked("q1", 0, node="b1")], *led_to_the_end).verdict is Verdict.VALID
    )


def test_unacked_max_is_of_one_node() -> None:
    """The former leader and the new one reported ten each, one after the other."""
    moved = [unacked("q1", lambda at: 10 * (at < 40)), unacked("q1", lambda at: 10 * (40 <= at < 80), node="b1")]
    assert check([CALM, *moved]).numbers["unacked_max"] == 10


def test_unknown_where_nodes_disagree_and_no_leader_is_known(message: Messages) -> None:
    reported = [CALM, unacked("q1", 0), unacked("q1", 2, node="b1")]
    for looks in ([], led("q1", (84, "a1"), (94, "b1")), led("q1", (94, "c1"))):
        finding = check(reported, *looks)
        assert finding.verdict is Verdict.UNKNOWN
        message(finding.summary)
    assert check([CALM, unacked("q1", 3), unacked("q1", 2, node="b1")]).numbers["unacked_at_end"] == 2
