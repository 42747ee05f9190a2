"""The page of verdicts: a row for each scenario, a column for each version, each run in one cell."""

from __future__ import annotations

from rabbitmq_resilience.tables.by_version import by_version
from rabbitmq_resilience.tables.false_alarms import read_explained
from rabbitmq_resilience.tables.ledger import read_ledger
from rabbitmq_resilience.tools.locations import content
from tests.tables.test_evidence import line


def test_each_run_is_in_one_cell_and_the_newest_version_comes_first() -> None:
    lines = [
        line("20260101T000001Z-a", "A zone is cut off", "VALID", "3.10.8"),
        line("20260101T000002Z-b", "A zone is cut off", "INVALID", "4.0.5"),
        line("20260101T000003Z-c", "A zone is cut off", "INVALID", "4.0.5", expected=False),
        line("20260101T000004Z-d", "A node dies", "UNKNOWN", "4.0.5", expected=False),
    ]

    rows = by_version(lines, {}).splitlines()

    assert "| Scenario | 4.0.5 | 3.10.8 |" in rows
    assert "| A zone is cut off | 2: 0 VALID, 1 known, 1 INVALID | 1: 1 VALID |" in rows
    assert "| A node dies | 1: 0 VALID, 1 UNKNOWN | - |" in rows
    assert "| *scenarios with a run* | 2 | 1 |" in rows


def test_the_page_that_is_kept_is_that_of_the_ledger() -> None:
    kept = (content("reports") / "verdicts.md").read_text(encoding="utf-8")
    assert kept == by_version(read_ledger(), read_explained())
