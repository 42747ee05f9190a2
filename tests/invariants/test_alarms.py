from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.invariants.alarms import Alarms
from rabbitmq_resilience.invariants.verdict import Finding, Verdict
from rabbitmq_resilience.record.events import Event
from tests.invariants.literal import THREE, Row, cluster, fault, history, node_states, phases, queues, told

METRICS = {"memory": "alarm_memory", "disk": "alarm_disk"}


def alarms(*raised: tuple[str, str, float, float]) -> list[list[Row]]:
    """Nothing is raised but (kind, node, from_s, to_s)."""

    def value(kind: str, node: str) -> Any:
        spans = [(start, end) for k, n, start, end in raised if (k, n) == (kind, node)]
        return lambda at: float(any(start <= at < end for start, end in spans))

    return [told(metric, node, value(kind, node)) for kind, metric in METRICS.items() for node in THREE]


def raises(kind: str, *nodes: str, start_s: float = 20, end_s: float = 50) -> list[Event]:
    return fault(start_s, end_s, name="alarm", alarm=kind, alarmed=nodes)


def check(metrics: list[list[Row]], *events: Any) -> Finding:
    whole = [cluster(), queues("q1"), phases(), node_states()]
    return Alarms(raised_within_s=5, cleared_within_s=8).check(history((), (), [*whole, *events], metrics=metrics))


def test_empty() -> None:
    assert Alarms().check(history()).verdict is Verdict.UNKNOWN
    assert check([]).verdict is Verdict.UNKNOWN
    assert check([told("alarm_memory", node, 0) for node in THREE]).verdict is Verdict.UNKNOWN


def test_unknown_without_the_steady_phase() -> None:
    events = [cluster(), queues("q1"), phases(recovery=70, drain=90, end=95), node_states()]
    assert Alarms().check(history((), (), events, metrics=alarms())).verdict is Verdict.UNKNOWN


def test_sane_without_any() -> None:
    finding = check(alarms())
    assert (finding.verdict, finding.numbers["alarms_expected"]) == (Verdict.VALID, 0)


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_sane_raised_and_cleared_in_time(kind: str) -> None:
    finding = check(alarms((kind, "a1", 23, 55), (kind, "b1", 20, 50)), raises(kind, "a1", "b1"))
    assert (finding.verdict, finding.numbers["alarms_expected"]) == (Verdict.VALID, 2)


def test_pathological_raised_without_cause() -> None:
    finding = check(alarms(("memory", "c1", 30, 31)))
    assert finding.verdict is Verdict.INVALID
    assert finding.summary == "the memory alarm of c1 was raised without cause at +30.000 s, beside no fault"


@pytest.mark.parametrize("seen", [("disk", "a1", 20, 50), ("memory", "b1", 20, 50)])
def test_pathological_another_kind_or_node(seen: tuple[str, str, float, float]) -> None:
    finding = check(alarms(("memory", "a1", 20, 50), seen), raises("memory", "a1"))
    assert (finding.verdict, finding.numbers["violations"]) == (Verdict.INVALID, 1)


def test_pathological_not_raised() -> None:
    finding = check(alarms(("memory", "a1", 26, 50)), raises("memory", "a1"))
    assert finding.verdict is Verdict.INVALID
    assert "was to raise the memory alarm on a1" in finding.summary
    assert len(finding.examples) == 1


def test_pathological_not_cleared() -> None:
    finding = check(alarms(("memory", "a1", 20, 60)), raises("memory", "a1"))
    assert finding.verdict is Verdict.INVALID
    assert "was still raised at +59.000 s" in finding.summary


def test_unknown_where_it_was_too_short_to_be_due() -> None:
    finding = check(alarms(), raises("memory", "a1", end_s=23))
    assert (finding.verdict, len(finding.examples)) == (Verdict.UNKNOWN, 1)
    assert finding.numbers == {"alarms_expected": 1, "violations": 0}


@pytest.mark.parametrize(("end_s", "verdict"), [(24.9, Verdict.UNKNOWN), (25, Verdict.INVALID)])
def test_an_alarm_is_due_once_its_cause_lasted_as_long_as_the_bound(end_s: float, verdict: Verdict) -> None:
    assert check(alarms(), raises("memory", "a1", end_s=end_s)).verdict is verdict


def test_unknown_where_the_node_that_was_to_raise_it_told_nothing() -> None:
    silent = [[row for row in rows if row["node"] != "a1"] for rows in alarms()]
    finding = check(silent, raises("memory", "a1"), node_states(unlike={"a1": [(0, 99, "down")]}))
    assert finding.verdict is Verdict.UNKNOWN


def test_sane_short_and_seen() -> None:
    assert check(alarms(("memory", "a1", 22, 24)), raises("memory", "a1", end_s=23)).verdict is Verdict.VALID


def test_a_step_that_was_skipped_raises_nothing() -> None:
    skipped = fault(20, 50, name="alarm", alarm="memory", alarmed=["a1"], states=["skipped"])
    assert check(alarms(), skipped).verdict is Verdict.VALID
    assert check(alarms(("memory", "a1", 22, 24)), skipped).verdict is Verdict.INVALID


def test_unknown_where_a_node_said_nothing() -> None:
    silent = [[row for row in rows if not (row["node"] == "b1" and row["t_us"] % 10**9 > 40e6)] for rows in alarms()]
    finding = check(silent)
    assert finding.verdict is Verdict.UNKNOWN
    assert "b1 served and said nothing" in finding.summary


def test_unknown_where_it_has_time_to_be_cleared_and_the_record_ends() -> None:
    raised = alarms(("memory", "a1", 62, 99))
    finding = check(raised, raises("memory", "a1", start_s=60, end_s=90))
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.summary == "the memory alarm of a1 was still raised when it told for the last time, at +95.000 s"
