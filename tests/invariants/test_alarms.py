from __future__ import annotations

import random
from typing import Any

import pytest

from rabbitmq_resilience.checkers.alarms import Alarms
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import THREE, Row, cluster, event, fault, history, node_states, phases, queues, told, us
from tests.messages import Messages

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


def test_pathological_raised_without_cause(message: Messages) -> None:
    finding = check(alarms(("memory", "c1", 30, 31)))
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "c1" in finding.summary
    assert "+30.000 s" in finding.summary


@pytest.mark.parametrize("seen", [("disk", "a1", 20, 50), ("memory", "b1", 20, 50)])
def test_pathological_another_kind_or_node(seen: tuple[str, str, float, float]) -> None:
    finding = check(alarms(("memory", "a1", 20, 50), seen), raises("memory", "a1"))
    assert (finding.verdict, finding.numbers["violations"]) == (Verdict.INVALID, 1)


def test_pathological_not_raised(message: Messages) -> None:
    finding = check(alarms(("memory", "a1", 26, 50)), raises("memory", "a1"))
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "a1" in finding.summary
    assert len(finding.examples) == 1


def test_pathological_not_cleared(message: Messages) -> None:
    finding = check(alarms(("memory", "a1", 20, 60)), raises("memory", "a1"))
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "+59.000 s" in finding.summary


BUSY = [event(at_s, "machine", busy=1.0, others=0.5) for at_s in range(1, 96)]


def test_late_while_others_have_the_machine_is_not_reported_and_very_late_is(message: Messages) -> None:
    raised = check(alarms(("memory", "a1", 30, 50)), raises("memory", "a1"), BUSY)
    assert raised.verdict is Verdict.UNKNOWN
    message(raised.summary)
    assert "+30.000 s" in raised.summary
    assert "50%" in raised.summary
    assert check(alarms(("memory", "a1", 32, 50)), raises("memory", "a1"), BUSY).verdict is Verdict.INVALID
    cleared = check(alarms(("memory", "a1", 20, 66)), raises("memory", "a1"), BUSY)
    assert cleared.verdict is Verdict.UNKNOWN
    message(cleared.summary)
    assert "+59.000 s" in cleared.summary
    assert "50%" in cleared.summary
    assert check(alarms(("memory", "a1", 20, 68)), raises("memory", "a1"), BUSY).verdict is Verdict.INVALID


@pytest.mark.parametrize("again", [("memory", "a1", 70, 71), ("disk", "a1", 20, 21)])
def test_a_busy_machine_raises_nothing(again: tuple[str, str, float, float]) -> None:
    assert check(alarms(("memory", "a1", 20, 60), again), raises("memory", "a1"), BUSY).verdict is Verdict.INVALID


def silent(rows: list[list[Row]], start_s: int, end_s: int) -> list[list[Row]]:
    """Without what a1 said in those seconds."""
    hidden = [us(at_s) for at_s in range(start_s, end_s + 1)]
    return [[row for row in each if row["node"] != "a1" or row["t_us"] not in hidden] for each in rows]


def test_late_after_its_cause_is_late_and_not_never() -> None:
    seen = alarms(("memory", "a1", 27, 30))
    assert check(seen, raises("memory", "a1", end_s=26), BUSY).verdict is Verdict.UNKNOWN
    assert check(seen, raises("memory", "a1", end_s=26)).verdict is Verdict.INVALID


def test_what_is_raised_again_is_not_late_until_then() -> None:
    again = fault(62, 80, step=1, name="alarm", alarm="memory", alarmed=["a1"])
    assert check(alarms(("memory", "a1", 20, 85)), raises("memory", "a1"), again, BUSY).verdict is Verdict.UNKNOWN
    longer = fault(70, 80, step=1, name="alarm", alarm="memory", alarmed=["a1"])
    assert check(alarms(("memory", "a1", 20, 85)), raises("memory", "a1"), longer, BUSY).verdict is Verdict.INVALID


@pytest.mark.parametrize("from_s", [20, 23, 31])
def test_no_one_knows_when_an_alarm_came_that_no_one_looked_for(from_s: int) -> None:
    rows = silent(alarms(("memory", "a1", from_s, 50)), 20, 30)
    assert check(rows, raises("memory", "a1")).verdict is Verdict.UNKNOWN


def test_it_is_late_for_as_long_as_was_seen() -> None:
    rows = silent(alarms(("memory", "a1", 20, 60)), 60, 70)
    assert check(rows, raises("memory", "a1"), BUSY).verdict is Verdict.UNKNOWN


def test_one_that_comes_again_is_not_still_raised(message: Messages) -> None:
    finding = check(alarms(("memory", "a1", 20, 50), ("memory", "a1", 70, 71)), raises("memory", "a1"))
    message(finding.summary)
    assert "+70.000 s" in finding.summary


def test_what_is_no_number_shows_nothing() -> None:
    rows = [[row | {"value": float("nan")} if row["node"] == "a1" else row for row in each] for each in alarms()]
    assert check(rows, raises("memory", "a1")).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_way_comes_to_the_same_verdict(seed: int) -> None:
    """Second by second. The cause lasts from 20 to 50 s, and is seen within 5 s, and gone within 8 s."""
    source = random.Random(seed)  # noqa: S311 - no secret
    told = set()
    for _ in range(200):
        ends = sorted(source.sample(range(15, 97), source.choice((2, 2, 4))))
        spans = [(start, end) for start, end in zip(ends[::2], ends[1::2], strict=True) if start < 96]
        if source.random() < 0.5:
            spans[0] = (source.randint(19, 33), spans[0][1] if spans[0][1] > 33 else source.randint(34, 70))
        busy = source.random() < 0.6
        on = {at for start, end in spans for at in range(start, min(end, 96))}
        wrong = excused = False
        if not any(at in on for at in range(20, 26)):
            came = [at for at in range(26, 96) if at in on]
            by_others = busy and bool(came) and min(came[0] - 1, 50) - 20 <= 10
            excused, wrong = excused or by_others, wrong or not by_others
        for at in sorted(on):
            begun = next(start for start in range(at, -1, -1) if start - 1 not in on)
            gone = next(end for end in range(at, 98) if end not in on)
            if not 20 <= at <= 58:
                by_others = busy and at > 58 and 20 <= begun <= 58 and gone <= 95 and gone - 1 - 50 <= 16
                excused, wrong = excused or by_others, wrong or not by_others
        slow = Verdict.INVALID if wrong else Verdict.UNKNOWN if excused or 95 in on else Verdict.VALID
        rows = alarms(*(("memory", "a1", start, end) for start, end in spans))
        finding = check(rows, raises("memory", "a1"), BUSY if busy else [])
        assert finding.verdict is slow, (spans, busy, finding)
        told.add(slow)
    assert told == set(Verdict)


def test_unknown_where_it_was_too_short_to_be_due() -> None:
    finding = check(alarms(), raises("memory", "a1", end_s=23))
    assert (finding.verdict, len(finding.examples)) == (Verdict.UNKNOWN, 1)
    assert finding.numbers == {"alarms_expected": 1, "violations": 0}


@pytest.mark.parametrize(("end_s", "verdict"), [(24.9, Verdict.UNKNOWN), (25, Verdict.INVALID)])
def test_an_alarm_is_due_once_its_cause_lasted_as_long_as_the_bound(end_s: float, verdict: Verdict) -> None:
    assert check(alarms(), raises("memory", "a1", end_s=end_s)).verdict is verdict


def test_unknown_where_the_node_that_was_to_raise_it_reported_nothing() -> None:
    silent = [[row for row in rows if row["node"] != "a1"] for rows in alarms()]
    finding = check(silent, raises("memory", "a1"), node_states(unlike={"a1": [(0, 99, "down")]}))
    assert finding.verdict is Verdict.UNKNOWN


def test_sane_short_and_seen() -> None:
    assert check(alarms(("memory", "a1", 22, 24)), raises("memory", "a1", end_s=23)).verdict is Verdict.VALID


def test_a_step_that_was_skipped_raises_nothing() -> None:
    skipped = fault(20, 50, name="alarm", alarm="memory", alarmed=["a1"], states=["skipped"])
    assert check(alarms(), skipped).verdict is Verdict.VALID
    assert check(alarms(("memory", "a1", 22, 24)), skipped).verdict is Verdict.INVALID


def test_unknown_where_a_node_said_nothing(message: Messages) -> None:
    silent = [[row for row in rows if not (row["node"] == "b1" and row["t_us"] % 10**9 > 40e6)] for rows in alarms()]
    finding = check(silent)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "b1" in finding.summary


def test_unknown_where_it_has_time_to_be_cleared_and_the_record_ends(message: Messages) -> None:
    raised = alarms(("memory", "a1", 62, 99))
    finding = check(raised, raises("memory", "a1", start_s=60, end_s=90))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "a1" in finding.summary
    assert "+95.000 s" in finding.summary
