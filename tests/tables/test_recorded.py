"""Which run directories have a verdict, and which platforms they are of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rabbitmq_resilience.extensions.tables.run_verdicts import Platform, platform, recorded
from rabbitmq_resilience.history.run_directory import RunDirectory


def verdict(word: str = "VALID", *, version: str = "3.10.8", **fields: Any) -> dict[str, Any]:
    shape = {"topology": "three", "partition_handling": "autoheal", "queue_type": "quorum"}
    return {"verdict": word, "title": "A cut, three, autoheal, quorum", "broker_version": version, **shape, **fields}


def test_runs_without_a_verdict_are_left_out(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, "broken")
    run = RunDirectory.create(tmp_path, "whole")
    run.verdict_file.write_text(json.dumps(verdict()))
    (tmp_path / "index.html").write_text("")
    assert recorded([tmp_path]) == [verdict()]


def test_platforms_are_in_the_order_of_versions_and_name_their_driver() -> None:
    found = [
        platform(verdict(version="3.10.8", driver="docker")),
        Platform("3.9.1", "local"),
        Platform("3.10.8", "local"),
    ]
    assert [str(one) for one in sorted(found)] == ["3.9.1", "3.10.8", "3.10.8 in containers"]
