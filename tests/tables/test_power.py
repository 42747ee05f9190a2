"""The page of power cuts: each run in one cell, with what it lost."""

from __future__ import annotations

from typing import Any

from rabbitmq_resilience.extensions.tables.ledger import read_ledger
from rabbitmq_resilience.extensions.tables.power import power
from rabbitmq_resilience.extensions.tables.runs import read_explained
from rabbitmq_resilience.tools.locations import content
from tests.tables.test_evidence import line

TITLE = "Every node loses power, three_nodes, pause_minority, {}"


def lossy(name: str, lost: int) -> dict[str, Any]:
    """Return the line of a run that lost messages of a classic queue."""
    found = line(name, TITLE.format("classic"), "INVALID", "4.0.5")
    summary = f"900 messages were confirmed; {lost} of them never arrived"
    return found | {"invariants": {"no_loss": {"verdict": "INVALID", "summary": summary}}}


LINES = [
    line("20260101T000001Z-a", TITLE.format("quorum"), "VALID", "4.3.6"),
    line("20260101T000002Z-b", TITLE.format("quorum"), "VALID", "4.3.6"),
    lossy("20260101T000003Z-c", 40),
    lossy("20260101T000004Z-d", 700),
    line("20260101T000005Z-e", "A zone is cut off, three_nodes, pause_minority, quorum", "INVALID", "4.0.5"),
]


def test_each_run_is_in_one_cell_with_what_it_lost() -> None:
    rows = power(LINES, {}).splitlines()

    assert "| Scenario | 4.3.6, quorum | 4.0.5, classic |" in rows
    assert "| Every node loses power | 2: 2 VALID | 2: 0 VALID, 2 known, lost 40 of 900, 700 of 900 |" in rows
    assert not any("A zone is cut off" in row for row in rows)


def test_the_page_that_is_kept_is_that_of_the_ledger() -> None:
    kept = (content("reports") / "power.md").read_text(encoding="utf-8")
    assert kept == power(read_ledger(), read_explained())
