"""The page of verdicts: a row for each scenario, a column for each version, each run in one cell."""

from __future__ import annotations

from rabbitmq_resilience.extensions.tables.by_version import by_version
from rabbitmq_resilience.extensions.tables.ledger import read_ledger
from rabbitmq_resilience.extensions.tables.runs import read_explained
from rabbitmq_resilience.tools.locations import content
from tests.tables.test_evidence import LINES


def test_each_run_is_in_one_cell_and_the_newest_version_comes_first() -> None:
    rows = by_version(LINES, {}).splitlines()

    assert "| Scenario | 4.0.5 | 3.10.8 |" in rows
    assert "| A zone is cut off, three_nodes | 2: 0 VALID, 1 known, 1 INVALID | 1: 1 VALID |" in rows
    assert "| Something new | 1: 0 VALID, 1 UNKNOWN | - |" in rows
    assert "| *scenarios with a run* | 2 | 1 |" in rows


def test_the_page_that_is_kept_is_that_of_the_ledger() -> None:
    kept = (content("reports") / "verdicts.md").read_text(encoding="utf-8")
    assert kept == by_version(read_ledger(), read_explained())
