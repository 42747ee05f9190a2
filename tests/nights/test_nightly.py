"""A whole night by the command that CI services call: staged runs, and one minute on real brokers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.nights.called import LIMIT_REACHED
from rabbitmq_resilience.extensions.nights.night_command import MEANINGS
from rabbitmq_resilience.extensions.nights.night_file import find_nights, read_night
from rabbitmq_resilience.plugin.sessions import EXIT_UNKNOWN
from rabbitmq_resilience.tools.waiting import wait_until
from tests.messages import Messages
from tests.nights.staged import ROOT, stage
from tests.nights.test_recording import INVALID, UNKNOWN, VALID
from tests.tables.lines import line_with

QUIET = """
version: 1
title: A client goes and comes
topology: three_nodes_three_zones
workload: {queues: 1, rate_per_s: 100}
phases: {steady_s: 2, recovery_s: 60, settled_s: 1}
schedule:
  - {at_s: 1, for_s: 1, fault: kill_client, client: "publisher:0"}
invariants: {no_loss: {}}
"""


def begun(folder: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "RABBITMQ_RESILIENCE", "GITHUB"))}
    return subprocess.Popen(
        [sys.executable, "-m", "rabbitmq_resilience", "nightly", *arguments],
        cwd=folder,
        env={**inherited, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def nightly(folder: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    with begun(folder, *arguments, **environ) as process:
        told, _ = process.communicate(timeout=300)
    return process.returncode, told


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.core
def test_a_broken_night_keeps_what_is_needed_in_the_morning(tmp_path: Path, message: Messages) -> None:
    folder = stage(tmp_path / "f", f"{VALID} one", INVALID, f"{INVALID} known")
    status, told = nightly(folder, "--to", "night", GITHUB_STEP_SUMMARY=str(tmp_path / "step.md"))
    to = folder / "night"
    assert status == 1, told
    message(told.splitlines()[-1])
    assert files(to) == {"night.jsonl", "junit.xml", "summary.md", "runs"}
    night = read_night(to / "night.jsonl")
    assert night.ended is not None
    good, bad, known = night.played
    assert files(to / "runs") == {good.run, bad.run, known.run, "index.html"}
    assert files(to / "runs" / good.run) == {"verdict.json", "report.html", "fault.yaml"}
    assert files(to / "runs" / bad.run) >= {"events.jsonl", "history", "logs", "report.html", "verdict.json"}
    index = (to / "runs" / "index.html").read_text(encoding="utf-8")
    assert all(f"{run.run}/report.html" in index for run in night.played)
    text = (to / "summary.md").read_text(encoding="utf-8")
    message(text.splitlines()[0])
    assert (tmp_path / "step.md").read_text(encoding="utf-8") == text
    assert "| #1 | 4.0.5, docker | 1 of 1 |" in text


@pytest.mark.plays
@pytest.mark.parametrize(
    ("titles", "arguments", "status"),
    [
        ([f"{VALID} one"], [], 0),
        ([UNKNOWN, f"{VALID} one"], [], EXIT_UNKNOWN),
        ([f"{VALID} one"], ["--no-such-option"], 4),
        ([], [], 5),
    ],
)
def test_statuses_are_those_of_pytest_and_are_explained(
    tmp_path: Path, titles: list[str], arguments: list[str], status: int, message: Messages
) -> None:
    folder = stage(tmp_path / "f", *titles)
    done, told = nightly(folder, *arguments)
    assert done == status, told
    last = told.splitlines()[-1]
    assert last.startswith(f"nightly: status {status}, {MEANINGS[status]}")
    message(last, hide={r"\d{8}T\d{6}Z": "TIME"})


@pytest.mark.plays
def test_the_next_night_has_a_folder_of_its_own_and_goes_on(tmp_path: Path, message: Messages) -> None:
    folder = stage(tmp_path / "f", f"{VALID} one", f"{VALID} two")
    for number in (1, 2):
        assert nightly(folder, "--resilience-budget-min=0.000001", "--to", f"night{number}")[0] == 0
    first, second = (read_night(path) for path in find_nights(folder / "reports" / "nights"))
    assert {first.played[0].scenario, second.played[0].scenario} == {run.scenario for run in first.left_out} | {
        run.scenario for run in second.left_out
    }
    status, told = nightly(folder, "--to", "night2")
    assert status == 4
    message(line_with(told, "night2"))


@pytest.mark.plays
def test_a_night_that_hangs_is_ended_and_keeps_what_it_had(tmp_path: Path) -> None:
    folder = stage(tmp_path / "f", f"{VALID} one", "hangs")
    status, told = nightly(folder, "--to", "night", "--limit-min", "1")
    assert status == LIMIT_REACHED, told
    assert files(folder / "night") == {"night.jsonl", "junit.xml", "summary.md", "runs"}
    night = read_night(folder / "night" / "night.jsonl")
    assert [run.verdict for run in night.played] == ["VALID"]
    assert night.ended is not None
    assert night.ended.status == pytest.ExitCode.INTERRUPTED


@pytest.mark.plays
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_cancelled_keeps_what_it_had(tmp_path: Path, number: int, message: Messages) -> None:
    """Also a background job of a shell, which ignores SIGINT until it says otherwise."""
    folder = stage(tmp_path / "f", f"{VALID} one", "hangs")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = begun(folder, "--to", "night")
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        wait_until((folder / "hangs").exists, timeout_s=240, what="the second scenario")
        process.send_signal(number)
        told, _ = process.communicate(timeout=120)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, told
    message(line_with(told, "nightly: status 2"))
    assert len(read_night(folder / "night" / "night.jsonl").played) == 1


@pytest.mark.plays
def test_a_night_of_a_minute_on_real_brokers(tmp_path: Path) -> None:
    """What the jobs of CI services run, with a budget for one of two scenarios."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.fault.yaml").write_text(QUIET)
    status, told = nightly(tmp_path, "--to", "night", "--limit-min", "10", "--resilience-budget-min", "1")
    assert status == 0, told
    night = read_night(tmp_path / "night" / "night.jsonl")
    (run,) = night.played
    assert (run.verdict, run.driver, len(night.left_out)) == ("VALID", "local", 1)
    assert run.outage_s is not None
    verdict = json.loads((tmp_path / "night" / "runs" / run.run / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["verdict"] == "VALID"
    assert 'name="rerun"' in (tmp_path / "night" / "junit.xml").read_text(encoding="utf-8")
    again = run.rerun.split()[-1]
    assert (tmp_path / again).is_file()


def test_make_nightly_is_that_command() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    done = subprocess.run(["make", "-n", "nightly"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "-m rabbitmq_resilience nightly --limit-min 200 --budget-min 140 " in done.stdout
