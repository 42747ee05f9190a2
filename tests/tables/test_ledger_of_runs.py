from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rabbitmq_resilience.extensions.tables.ledger import entered, ledger, read_ledger
from tests.messages import Messages


def recorded(folder: Path, name: str, word: str, **more: Any) -> None:
    run = folder / name
    run.mkdir(parents=True)
    verdict = {
        "title": "A zone is cut off",
        "verdict": word,
        "as_expected": word == "VALID",
        "broker_version": "3.10.8",
        "driver": "local",
        "invariants": {"order": {"verdict": word, "summary": "3 were overtaken", "numbers": {}, "examples": []}},
        "assumptions": {},
        **more,
    }
    (run / "verdict.json").write_text(json.dumps(verdict), encoding="utf-8")
    (run / "events.jsonl").write_text("", encoding="utf-8")


def test_a_sitting_goes_on_where_the_one_before_ended(tmp_path: Path) -> None:
    recorded(tmp_path, "20260101T000001Z-a", "VALID")
    first = entered([tmp_path], [], commit="abc", purpose="random")
    recorded(tmp_path, "20260101T000002Z-b", "INVALID")
    second = entered([tmp_path], first, commit="def", purpose="random")

    assert [(line["run"], line["commit"]) for line in first] == [("20260101T000001Z-a", "abc")]
    assert [(line["run"], line["commit"]) for line in second] == [("20260101T000002Z-b", "def")]
    assert second[0]["invariants"] == {"order": {"verdict": "INVALID", "summary": "3 were overtaken"}}
    assert first[0]["invariants"] == {}


def test_a_ledger_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert read_ledger(tmp_path / "ledger.jsonl") == []


def test_it_counts_by_purpose_commit_and_platform_and_shows_what_was_odd(tmp_path: Path, message: Messages) -> None:
    recorded(tmp_path, "20260101T000001Z-a", "VALID")
    recorded(tmp_path, "20260101T000002Z-b", "INVALID")
    recorded(tmp_path, "20260101T000003Z-c", "VALID", driver="docker")
    lines = entered([tmp_path], [], commit="abc", purpose="random")

    text = ledger(lines, {"20260101T000002Z": {"cause": "rabbitmq", "why": "it did"}})

    assert "| random | abc | 3.10.8 | 2 | 1 | 0 | 1 | 0 |" in text
    assert "| random | abc | 3.10.8 in containers | 1 | 1 | 0 | 0 | 0 |" in text
    about = "| 20260101T000002Z A zone is cut off | 3.10.8 | INVALID | order: 3 were overtaken |"
    (row,) = (line for line in text.splitlines() if line.startswith(about))
    assert row.endswith(" | it did |")
    message(row)
    message(next(line for line in text.splitlines() if line.startswith("1 did not")))
