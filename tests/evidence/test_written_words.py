"""What the words of a timeline say: which fault began, which ended, and what had not happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.incidents.fault_file_command import evidence_of
from rabbitmq_resilience.extensions.incidents.occurrences import Evidence, Occurrence, combined


def written(tmp_path: Path, *rows: str, columns: str = "time,node,event") -> Evidence:
    """Return the evidence of rows, a minute apart."""
    lines = [f"2026-01-31T12:{minute:02}:00Z,{row}" for minute, row in enumerate(rows)]
    (tmp_path / "timeline.csv").write_text("\n".join([columns, *lines]))
    return evidence_of([tmp_path / "timeline.csv"])


def steps(evidence: Evidence) -> list[tuple[str, float | None]]:
    """Return the faults, and for how many minutes each lasted."""
    return [
        (one.fault, None if one.end is None else round((one.end - one.begin) / 60, 2)) for one in evidence.occurrences
    ]


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        ("killed by the kernel: out of memory", "kill"),
        ("OOM killer", "kill"),
        ("process killed with SIGKILL as it failed to stop", "kill"),
        ("kill -STOP (paused)", "pause"),
        ("stopped answering: VM frozen", "pause"),
        ("memory alarm", "alarm"),
        ("data center lost power", "kill"),
        ("lost its data disk", "lose_disk"),
        ("host rebooted", "kill"),
        ("network partition started", "partition"),
        ("disconnected and could not reconnect", "disconnect"),
        ("broker crashed while it recovered", "kill"),
    ],
)
def test_a_row_begins_the_fault_that_it_names(event: str, fault: str, tmp_path: Path) -> None:
    assert steps(written(tmp_path, f"h1,{event}")) == [(fault, None)]


@pytest.mark.parametrize(
    "event", ["still not back up", "did not recover by itself", "it wasn't restored", "could not be restored"]
)
def test_what_had_not_happened_ends_nothing(event: str, tmp_path: Path) -> None:
    evidence = written(tmp_path, "h1,broker killed", f"h1,{event}", "h1,broker back")
    assert steps(evidence) == [("kill", 2)]
    assert evidence.notes == (f"row 3 was not understood and is not in the schedule: {event}",)


def test_a_crash_during_the_recovery_from_a_cut_ends_no_cut(tmp_path: Path) -> None:
    rows = ["h1,network partition", "h1,broker crashed while it recovered", "h1,partition healed", "h1,broker back"]
    assert steps(written(tmp_path, *rows)) == [("partition", 2), ("kill", 2)]


@pytest.mark.parametrize("event", ["120 messages lost", "quorum lost for queue orders"])
def test_what_was_lost_with_a_fault_is_none(event: str, tmp_path: Path) -> None:
    evidence = written(tmp_path, "h1,broker killed", f"h1,{event}")
    assert steps(evidence) == [("kill", None)]
    assert event in evidence.notes[0]


def test_a_cut_between_two_nodes_has_two_sides(tmp_path: Path) -> None:
    (cut,) = written(tmp_path, "h1 h2,partition", columns="time,between,event").occurrences
    assert cut.sides == (frozenset({"h1"}), frozenset({"h2"}))
    (cut,) = written(tmp_path, "h1 h2,partition").occurrences
    assert cut.sides == (frozenset({"h1", "h2"}),)


def happened(fault: str, begin: float, end: float | None, *sides: str, **fields: object) -> Evidence:
    parts = tuple(frozenset(side.split()) for side in sides)
    nodes = tuple(sorted(frozenset().union(*parts)))
    return Evidence(("a source",), nodes, (Occurrence(fault, parts, begin, end, fields),))


@pytest.mark.parametrize(
    ("logs", "timeline", "kept"),
    [
        (happened("kill", 10, 38, "b"), happened("kill", 0, None, "b"), 1),
        (happened("kill", 0, None, "b"), happened("kill", 5, 1200, "b"), 1),
        (happened("kill", 0, None, "b"), happened("kill", 500, 1200, "b"), 2),
        (happened("kill", 10, 38, "b"), happened("kill", 12, 20, "c"), 2),
        (happened("alarm", 0, 60, "a", resource="memory"), happened("alarm", 10, 30, "a", resource="disk"), 2),
        (happened("partition", 0, 600, "c", "a b"), happened("partition", 300, 320, "b"), 2),
        (happened("partition", 0, 600, "c", "a b"), happened("partition", 300, 320, "c"), 1),
    ],
)
def test_what_logs_and_a_timeline_both_have_counts_once(logs: Evidence, timeline: Evidence, kept: int) -> None:
    assert len(combined([logs, timeline]).occurrences) == kept


def test_only_times_of_logs_are_computed(tmp_path: Path) -> None:
    """Also if the name of a timeline has the word log."""
    (tmp_path / "incident-log.csv").write_text("time,node,event,duration\n2026-01-31T12:00:00Z,h1,partition,40s")
    assert evidence_of([tmp_path / "incident-log.csv"]).occurrences[0].notes == ()
