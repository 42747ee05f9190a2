"""The commands that repeat a run or judge it again, as a person would paste them.

Options are joined to their paths by ``=``: a path that stands alone decides where pytest looks for its configuration,
and with one outside the checkout it would not find the options.
"""

from __future__ import annotations

import shlex
from pathlib import Path


def rerun_command(directory: Path) -> str:
    return f".venv/bin/pytest --fault-file={shlex.quote(str(near(directory) / 'fault.yaml'))}"


def recheck_command(directory: Path) -> str:
    return f".venv/bin/pytest --recheck={shlex.quote(str(near(directory)))}"


def near(directory: Path) -> Path:
    """Relative to where pytest is called, if the directory is below it."""
    whole = directory.resolve()
    return whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else directory
