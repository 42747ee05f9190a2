"""Runs that were recorded on real brokers are judged as they were, whatever becomes of the code that judges."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.invariants.verdict import Verdict
from rabbitmq_resilience.play.judging import judge_run
from rabbitmq_resilience.record.run_directory import RunDirectory

RUNS = sorted(path for path in (Path(__file__).parent / "recorded").iterdir() if path.is_dir())

#: What names where a run lies, and not what it was.
WHERE = ("rerun",)


def document(run: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((run / "verdict.json").read_text(encoding="utf-8"))
    return {name: value for name, value in told.items() if name not in WHERE}


@pytest.mark.parametrize("recorded", RUNS, ids=lambda path: path.name)
def test_a_recorded_run_is_judged_the_same(recorded: Path, tmp_path: Path) -> None:
    run = RunDirectory(Path(shutil.copytree(recorded, tmp_path / recorded.name)))
    run.verdict_file.unlink()
    judge_run(run)
    assert document(run.path) == document(recorded)
    assert run.report.exists()


def test_each_verdict_each_driver_and_several_versions_are_there() -> None:
    documents = [document(run) for run in RUNS]
    assert {told["verdict"] for told in documents} == set(map(str, Verdict))
    assert {told["driver"] for told in documents} == {"local", "docker"}
    assert len({told["broker_version"] for told in documents}) >= 4


def test_a_damaged_record_still_gets_its_verdict(tmp_path: Path) -> None:
    run = RunDirectory(Path(shutil.copytree(RUNS[0], tmp_path / "damaged")))
    stream = next(run.history.glob("*.deliveries.arrows"))
    stream.write_bytes(b"nonsense" * 100)
    told = judge_run(run).document
    assert (told["verdict"], told["consequences"]) == ("UNKNOWN", None)
    assert any("the consequences are not to be told" in note for note in told["notes"])
    assert document(run.path)["verdict"] == "UNKNOWN"
