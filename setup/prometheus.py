"""Prometheus: the user's own, otherwise the distribution's package unpacked into ``.tools/prometheus/``.

Only scenarios that are measured need it, so set-up goes on where it cannot be had.
"""

from __future__ import annotations

import os
from pathlib import Path

from setup import debian
from setup.progress import Failed, run
from setup.steps import TOOLS, Missing, Step, within_root
from topologies.distributions import ToolMissingError, find_prometheus

PLACE = TOOLS / "prometheus"
PROGRAM = "usr/bin/prometheus"

_MISSING = """\
A Prometheus server is needed for scenarios with metrics, and could not be had:
  PROMETHEUS: not set
  prometheus on PATH: not there
  package of the distribution: {why}
How to provide it:
  Debian, Ubuntu   a package source that has prometheus (it is only downloaded, never installed)
  macOS            brew install prometheus
  elsewhere        put the program prometheus of its release on PATH, or name it in PROMETHEUS"""


def found() -> str | None:
    """What a run would use by now. Raises ``Missing`` if a server is named that cannot be used."""
    try:
        return within_root(find_prometheus(tools=TOOLS))
    except ToolMissingError as error:
        if os.environ.get("PROMETHEUS"):
            raise Missing(str(error)) from error
        return None


def make() -> str:
    if not debian.available():
        raise Missing(_MISSING.format(why="there is no apt-get here"))
    try:
        # The program is linked statically but for libc; what else the package depends on serves its pages.
        debian.provide("prometheus", wanted="prometheus", place=PLACE, prove=_starts)
    except Failed as error:
        raise Missing(_MISSING.format(why=str(error).replace("\n", "\n    "))) from error
    return within_root(PLACE / PROGRAM)


def _starts(unpacked: Path) -> None:
    run([unpacked / PROGRAM, "--version"], doing="starting the unpacked Prometheus")


STEP = Step("Prometheus", found, make, optional=True)
