"""Every scenario of every suite is one that would be played, and not refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.broker  # its version decides which scenarios apply


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
    checked = re.search(r"(\d+) skipped", done.stdout)
    assert checked is not None and int(checked[1]) > 180, done.stdout[-3000:]
