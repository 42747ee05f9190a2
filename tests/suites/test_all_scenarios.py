"""Every scenario of every suite is one that would be played, and not refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

NODES = {"three": 3, "four": 4, "five": 5, "seven": 7}


@pytest.mark.plays
def test_the_first_verdict_is_of_the_smallest_cluster() -> None:
    """As ``make partitions`` plays them."""
    options = ["--collect-only", "-q", "-m", "partitions and not slow", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "suites", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    told = re.findall(r"::.*\b(three|four|five|seven)_nodes", done.stdout)
    assert len(told) >= 20, done.stdout
    assert [NODES[word] for word in told] == sorted(NODES[word] for word in told)


@pytest.mark.plays  # its version decides which scenarios apply
@pytest.mark.parametrize("scale", ["0.01", "0.04", "1"])
def test_none_is_refused(scale: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "suites",
        "--check-only",
        "-q",
        f"--scale={scale}",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    checked = re.search(r"(\d+) passed", done.stdout)
    assert checked is not None and int(checked[1]) > 180, done.stdout[-3000:]
