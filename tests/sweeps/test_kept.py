"""Results of sweeps that are kept: of the file that stands there, with what somebody found, without the runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rabbitmq_resilience.extensions.sweeps.kept import SWEEPS, all_kept, keep, page
from rabbitmq_resilience.extensions.sweeps.results import Results, ResultsError
from rabbitmq_resilience.extensions.sweeps.sweep_file import load
from tests.messages import Messages
from tests.sweeps.test_results import OF, line
from tests.sweeps.written import SWEEP

TEXT = yaml.safe_dump({**SWEEP, "compared": "queues", "repeats": 6}, sort_keys=False)


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """The folder of results; the sweep's file is in ``sweeps``."""
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "mine.sweep.yaml").write_text(TEXT)
    results = Results.read(tmp_path / "elsewhere" / "mine")
    sweep = load(tmp_path / "sweeps" / "mine.sweep.yaml")
    results.begin(replace(OF, digest=sweep.digest), TEXT)
    for number in range(1, 5):
        results.enter(line("1", "quorum", number))
        results.enter(line("1", "mirrored", number, values={"confirmed_per_s": 50.0, "confirm_p99_ms": None}))
    results.enter(line("10", "quorum", 1, status="not held", values={}, why="busy"))
    return results.folder


def test_tables_and_pages_are_kept_and_findings_stay(tmp_path: Path, played: Path) -> None:
    kept = tmp_path / "sweeps" / "results" / "mine"
    kept.mkdir(parents=True)
    (kept / "findings.md").write_text(
        "As [they](http://x/y.md) said, [here](table.md), [there](../other/table.md#a) and [then](../../a.yaml).\n"
    )
    (kept / "comparison-9-gone.md").write_text("of another time")
    assert keep(played, sweeps=tmp_path / "sweeps") == kept
    assert {path.name for path in kept.iterdir()} == {
        "comparison-2-mirrored.html",
        "comparison-2-mirrored.md",
        "findings.md",
        "index.html",
        "runs.csv",
        "runs.jsonl",
        "runs.parquet",
        "sweep.yaml",
        "table.md",
    }
    assert "report.html" not in (kept / "index.html").read_text()
    (one,) = all_kept(tmp_path / "sweeps")
    text = page([one])
    assert "| [In flight](mine/table.md) | 3.10.8, local | 2 cores, 24 GB | c1 |" in text
    assert "| 8 measured, 1 not held | 0.0 |" in text
    assert (
        "## In flight\n\nAs [they](http://x/y.md) said, [here](mine/table.md), [there](other/table.md#a) and "
        "[then](../a.yaml).\n"
    ) in text


def test_what_is_kept_already_gets_its_pages_again(tmp_path: Path, played: Path) -> None:
    kept = keep(played, sweeps=tmp_path / "sweeps")
    runs, page_then = (kept / "runs.jsonl").read_bytes(), (kept / "index.html").read_text()
    (kept / "index.html").write_text("of another time")
    assert keep(kept, sweeps=tmp_path / "sweeps") == kept
    assert (kept / "runs.jsonl").read_bytes() == runs
    assert (kept / "index.html").read_text() == page_then


def test_results_of_another_file_are_refused(tmp_path: Path, played: Path, message: Messages) -> None:
    (tmp_path / "sweeps" / "mine.sweep.yaml").write_text(TEXT + "# since then\n")
    with message.of(ResultsError):
        keep(played, sweeps=tmp_path / "sweeps")
    with message.of(ResultsError):
        keep(tmp_path / "nothing", sweeps=tmp_path / "sweeps")


def test_results_of_another_base_are_refused(tmp_path: Path, played: Path, message: Messages) -> None:
    file = played / "runs.jsonl"
    file.write_text(file.read_text().replace(Results.read(played).of.digest, "another"))  # type: ignore[union-attr]
    with message.of(ResultsError):
        keep(played, sweeps=tmp_path / "sweeps")


def test_what_is_kept_here_is_of_the_files_that_stand_here() -> None:
    for one in all_kept():
        kept = (SWEEPS / "results" / one.name / "sweep.yaml").read_text()
        assert kept == (SWEEPS / f"{one.name}.sweep.yaml").read_text(), one.name
    shown = SWEEPS / "results" / "README.md"
    assert not shown.exists() or shown.read_text() == page(all_kept())
