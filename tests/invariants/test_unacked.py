from __future__ import annotations

from typing import Any

from invariants.unacked import Unacked
from invariants.verdict import Finding, Verdict
from tests.invariants.literal import Row, cluster, event, history, node_states, phases, queues, told


def check(metrics: list[list[Row]], *events: Any) -> Finding:
    whole = [cluster(), queues("q1", "q2"), phases(), node_states()]
    return Unacked().check(history((), (), [*whole, *events], metrics=metrics))


def unacked(queue: str, value: Any, *, node: str = "a1", end_s: int = 96) -> list[Row]:
    return told("unacked", node, value, queue=queue, end_s=end_s)


CALM = unacked("q2", 0, node="b1")


def test_empty() -> None:
    assert Unacked().check(history()).verdict is Verdict.UNKNOWN
    assert check([]).verdict is Verdict.UNKNOWN


def test_sane() -> None:
    finding = check([CALM, unacked("q1", lambda at: 50 if at < 91 else 0)])
    assert (finding.verdict, finding.numbers["unacked_max"]) == (Verdict.VALID, 50)


def test_sane_the_latest_leader_knows() -> None:
    assert check([CALM, unacked("q1", 7, end_s=92), unacked("q1", 0, node="c1")]).verdict is Verdict.VALID


def test_pathological() -> None:
    finding = check([CALM, unacked("q1", lambda at: 50 if at < 91 else 3)])
    assert (finding.verdict, finding.numbers["unacked_at_end"]) == (Verdict.INVALID, 3)
    assert finding.summary == "q1 held 3 unacknowledged messages after the drain"


def test_pathological_what_the_broker_takes_back_from_consumers_that_end() -> None:
    left = [CALM, unacked("q1", lambda at: 3 if at < 94 else 0)]
    gone = event(93.5, "worker", worker="consumer-0", event="stopped", node="a1", detail="")
    assert check(left).verdict is Verdict.VALID
    assert check(left, gone).verdict is Verdict.INVALID


def test_unknown_where_nobody_tells_of_a_queue() -> None:
    finding = check([CALM, unacked("q1", 0, end_s=80)])
    assert finding.verdict is Verdict.UNKNOWN
    assert "q1" in finding.summary
