from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rabbitmq_resilience.record.run_directory import RunDirectory
from rabbitmq_resilience.tables.verdicts import recorded, table


def verdict(word: str = "VALID", *, version: str = "3.10.8", **fields: Any) -> dict[str, Any]:
    shape = {"topology": "three", "partition_handling": "autoheal", "queue_type": "quorum"}
    return {"verdict": word, "title": "A cut, three, autoheal, quorum", "broker_version": version, **shape, **fields}


def rows(*verdicts: dict[str, Any]) -> list[str]:
    return [line for line in table(verdicts).splitlines() if line.startswith("| A")]


def test_counts_and_last_verdict() -> None:
    assert rows(verdict(), verdict()) == ["| A cut | three | autoheal | quorum | VALID, 2 of 2 |"]
    assert rows(verdict("UNKNOWN"), verdict()) == ["| A cut | three | autoheal | quorum | VALID; 1 VALID, 1 UNKNOWN |"]


def test_versions_are_columns_in_their_order() -> None:
    text = table([verdict(version="3.10.8"), verdict("INVALID", version="3.9.1")])
    assert "| Queues | 3.9.1 | 3.10.8 |" in text
    assert "| quorum | INVALID, 1 of 1 | VALID, 1 of 1 |" in text


def test_containers_have_columns_of_their_own() -> None:
    text = table([verdict(driver="docker"), verdict("INVALID"), verdict(driver="docker")])
    assert "| Queues | 3.10.8 | 3.10.8 in containers |" in text
    assert "| quorum | INVALID, 1 of 1 | VALID, 2 of 2 |" in text


def test_known_violations_are_named_with_their_reference() -> None:
    expected = "INVALID by no_loss"
    text = table([verdict("INVALID", as_expected=True, expected=expected, reference="somewhere#1")])
    assert "INVALID (known), 1 of 1" in text
    assert "- A cut, quorum, 3.10.8: INVALID by no_loss; somewhere#1" in text


def test_a_known_violation_is_told_once_for_all_topologies() -> None:
    known: dict[str, Any] = {"as_expected": True, "expected": "INVALID by no_loss"}
    text = table(
        verdict("INVALID", title=f"A cut, {name}, autoheal, quorum", topology=name, **known)
        for name in ("three", "five")
    )
    assert text.count("- A cut, quorum, 3.10.8: INVALID by no_loss; no reference") == 1


def test_runs_without_a_verdict_are_left_out(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, "broken")
    run = RunDirectory.create(tmp_path, "whole")
    run.verdict_file.write_text(json.dumps(verdict()))
    (tmp_path / "index.html").write_text("")
    assert recorded([tmp_path]) == [verdict()]
