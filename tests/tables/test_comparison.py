from __future__ import annotations

from typing import Any

from rabbitmq_resilience.extensions.tables.queue_types import comparison


def verdict(kind: str, word: str = "VALID", **numbers: Any) -> dict[str, Any]:
    return {
        "title": f"A node dies, three_nodes_three_zones, pause_minority, {kind}",
        "name": "A node dies",
        "topology": "three_nodes_three_zones",
        "queue_type": kind,
        "broker_version": "3.10.8",
        "verdict": word,
        "as_expected": True,
        "invariants": {name: {"numbers": found} for name, found in numbers.items()},
        "numbers": {"memory_ratio_max": 0.031, "replicated_bytes": 12_345_678},
    }


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_no_measured_run_leaves_only_the_heads() -> None:
    assert len(rows(comparison([{**verdict("quorum"), "numbers": {}}]))) == 2


def test_both_kinds_stand_in_one_row() -> None:
    found = rows(
        comparison(
            [
                verdict("quorum", throughput={"kept_ratio": 0.5}),
                verdict("mirrored", "INVALID", throughput={"kept_ratio": 0.8}),
                verdict("quorum", throughput={"kept_ratio": 0.94}, backlog={"backlog_peak": 12_000}),
            ]
        )
    )
    assert len(found) == 3
    row = dict(zip(found[0], found[2], strict=True))
    assert row["Scenario"] == "A node dies"
    assert row["Verdict"] == "VALID / INVALID (known)"
    assert row["Kept"] == "94% / 80%"
    assert row["Backlog"] == "12,000 / -"
    assert row["Replicated"] == "12 MB / 12 MB"
    assert row["Memory"] == "3% / 3%"


def test_a_kind_that_never_ran_is_a_dash() -> None:
    row = rows(comparison([verdict("mirrored", availability={"stall_s": 1.26})]))[2]
    assert row[3] == "- / VALID"
    assert "- / 1.3 s" in row
