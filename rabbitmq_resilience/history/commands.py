"""Build the commands that repeat a run or judge it again, in the form in which a person pastes them.

In a checkout the commands use the pytest of ``.venv``.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from rabbitmq_resilience.tools.locations import CHECKOUT

PYTEST = "pytest" if CHECKOUT is None else ".venv/bin/pytest"


def rerun_command(directory: Path) -> str:
    """Return the command that plays the scenario of the run in ``directory`` again."""
    return f"{PYTEST} {shlex.quote(str(near(directory) / 'fault.yaml'))}"


def recheck_command(directory: Path) -> str:
    """Return the command that judges the run in ``directory`` again."""
    return f"{PYTEST} --recheck={shlex.quote(str(near(directory)))}"


def near(directory: Path) -> Path:
    """Return the path relative to the working directory if it is below that; else the absolute path."""
    whole = directory.resolve()
    return whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else directory
