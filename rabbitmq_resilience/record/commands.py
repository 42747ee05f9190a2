"""The commands that repeat a run or judge it again, as a person would paste them.

In a checkout pytest is that of ``.venv``.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from rabbitmq_resilience.tools.locations import CHECKOUT

PYTEST = "pytest" if CHECKOUT is None else ".venv/bin/pytest"


def rerun_command(directory: Path) -> str:
    return f"{PYTEST} {shlex.quote(str(near(directory) / 'fault.yaml'))}"


def recheck_command(directory: Path) -> str:
    return f"{PYTEST} --recheck={shlex.quote(str(near(directory)))}"


def near(directory: Path) -> Path:
    """Relative to where pytest is called, if the directory is below it."""
    whole = directory.resolve()
    return whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else directory
