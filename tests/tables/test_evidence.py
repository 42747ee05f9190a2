"""The page of evidence: every run is counted once, in the family of its title, under its version."""

from __future__ import annotations

from typing import Any

from rabbitmq_resilience.extensions.tables.evidence import ALL, FAMILIES, OTHER, evidence, family
from rabbitmq_resilience.extensions.tables.ledger import read_ledger
from rabbitmq_resilience.extensions.tables.runs import read_explained
from rabbitmq_resilience.tools.locations import content


def line(name: str, title: str, word: str, version: str, *, expected: bool = True) -> dict[str, Any]:
    """Return a line of the ledger."""
    said = {"order": {"verdict": word, "summary": "3 were overtaken"}} if word != "VALID" else {}
    return {
        "run": name,
        "title": title,
        "verdict": word,
        "as_expected": expected,
        "broker_version": version,
        "driver": "local",
        "invariants": said,
        "assumptions": {},
    }


LINES = [
    line("20260101T000001Z-a", "A zone is cut off, three_nodes", "VALID", "3.10.8"),
    line("20260101T000002Z-b", "A zone is cut off, three_nodes", "INVALID", "4.0.5"),
    line("20260101T000003Z-c", "A zone is cut off, three_nodes", "INVALID", "4.0.5", expected=False),
    line("20260101T000004Z-d", "Something new", "UNKNOWN", "4.0.5", expected=False),
]


def test_each_run_is_in_one_cell_and_the_newest_version_comes_first() -> None:
    why = {"20260101T000003Z": {"cause": "rabbitmq", "why": "as rabbitmq-server#17319 says"}}

    rows = evidence(LINES, why).splitlines()

    assert "| Family | 4.0.5 | 3.10.8 |" in rows
    assert "| cuts | 2: 0 VALID, 1 known, 1 INVALID | 1: 1 VALID |" in rows
    assert f"| {OTHER} | 1: 0 VALID, 1 UNKNOWN | - |" in rows
    assert f"| {ALL} | 3: 0 VALID, 1 known, 1 INVALID, 1 UNKNOWN | 1: 1 VALID |" in rows
    assert "| 4.0.5 | RabbitMQ broke the promise | 1 | 0 | rabbitmq-server#17319 (1) |" in rows
    assert "| 4.0.5 | not explained | 0 | 1 | - |" in rows


def test_every_run_of_the_ledger_has_a_family_and_the_page_is_what_is_generated() -> None:
    lines = read_ledger()
    assert {family(str(one["title"])) for one in lines} <= {*FAMILIES}
    page = (content("reports") / "evidence.md").read_text(encoding="utf-8")
    assert page == evidence(lines, read_explained()), "python -m rabbitmq_resilience.extensions.tables.evidence"
