"""The rows of the page of whole nights add up."""

from __future__ import annotations

import re

from rabbitmq_resilience.tools.locations import content


def rows() -> list[dict[str, str]]:
    """Return the rows of the page: {head of a column: cell}."""
    page = (content("reports") / "nights.md").read_text(encoding="utf-8")
    heads, _, *nights = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in page.splitlines() if line.startswith("|")
    ]
    return [dict(zip(heads, night, strict=True)) for night in nights]


def number(cell: str) -> int:
    """Return the number that a cell begins with."""
    found = re.match(r"\d+", cell)
    assert found, cell
    return int(found[0])


def test_verdicts_add_up_to_the_runs_that_were_judged() -> None:
    assert len(rows()) >= 6
    for night in rows():
        verdicts = re.findall(r"(\d+) (?:VALID|INVALID|UNKNOWN)\b", night["What came of it"])
        assert sum(map(int, verdicts)) == number(night["Judged"]) <= number(night["Planned"]), night["Began (UTC)"]
