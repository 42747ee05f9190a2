"""A warning in the harness is told as one, and changes nothing that a session says of its runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rabbitmq_resilience.history.run_directory import RunDirectory
from tests.pages.synthetic_run import write_synthetic_run

CHECKOUT = Path(__file__).resolve().parents[2]

#: Loses a socket in each part of a session, and of a test, each to be found by the next collection.
LEAKING = """
import gc, socket, pytest

def lose():
    lost = {"socket": socket.socket()}
    lost["itself"] = lost
    del lost

def pytest_runtest_setup(item): lose()
def pytest_runtest_call(item): lose(); gc.collect()
def pytest_runtest_teardown(item): lose()
@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session): lose()
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return write_synthetic_run(tmp_path / "runs")


def session(run: RunDirectory, folder: Path, *arguments: str) -> tuple[int, list[str], str]:
    """Exit status, what is said of the run, and the whole output of judging it again."""
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--recheck={run.path}", *arguments]
    done = subprocess.run(command, cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False)
    said = re.findall(r"\b(?:VALID|INVALID|UNKNOWN)\b.*|\d+ (?:passed|failed)", done.stdout)
    return done.returncode, said, done.stdout + done.stderr


@pytest.mark.plays
@pytest.mark.parametrize("options", [(), ("-W", "error")], ids=["", "errors"])
def test_what_is_left_open_changes_no_verdict(run: RunDirectory, tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "leaking.py").write_text(LEAKING)
    status, said, whole = session(run, tmp_path, *options)
    leaking_status, leaking_said, leaking_whole = session(run, tmp_path, "-p", "leaking", *options)

    assert "ResourceWarning" not in whole
    assert (leaking_status, leaking_said) == (status, said), leaking_whole
    assert said
    assert "ResourceWarning: unclosed <socket" in leaking_whole
    assert "ExceptionGroup" not in leaking_whole
