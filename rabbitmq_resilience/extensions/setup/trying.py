"""Play one scenario, from set-up to the page of its run, for new users."""

from __future__ import annotations

import argparse
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rabbitmq_resilience.extensions.setup.setup_command import FIRST_STEPS, status_of
from rabbitmq_resilience.extensions.setup.setup_tasks import take
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.tools.locations import CHECKOUT, content

#: A scenario of ``make partitions``; without a checkout, the first example is played.
SUITE = "suites/test_partitions.py::test_minority_zone_cut_off[three_nodes-quorum]"
EXAMPLE = "examples/zone_cut_off.fault.yaml"


def main(arguments: Sequence[str], *, program: str) -> int:
    """Set up and play; return pytest's exit status, or that of set-up if it failed."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Set up what one scenario needs, cut a minority zone off, and say where the page of the run is.",
    )
    parser.add_argument("--runs", type=Path, default=Path("reports/runs"), help="the folder for run directories")
    runs = parser.parse_args(arguments).runs.absolute()
    status = status_of(lambda: take(FIRST_STEPS))
    if status:
        return status
    before = set(runs.glob("*"))
    print("A minority zone of a cluster of three brokers loses its links to the others, under load.", flush=True)
    scenario = str(content("faults") / EXAMPLE) if CHECKOUT is None else str(CHECKOUT / SUITE)
    command = [sys.executable, "-m", "pytest", "-q", f"--resilience-runs-dir={runs}", scenario]
    status = subprocess.run(command, check=False).returncode
    pages = [page for run in sorted(set(runs.glob("*")) - before) if (page := RunDirectory(run).report).exists()]
    for page in pages[-1:]:
        print(f"The page of this run is one file: {page}\nOpen it: {opening(page)}")
    return status


def opening(page: Path) -> str:
    """Return the command that shows a page here, or what to do without a screen."""
    opener = "open" if platform.system() == "Darwin" else "xdg-open"
    if shutil.which(opener) is None:
        return "copy it to a machine with a browser; it needs no network"
    return f"{opener} {shlex.quote(str(page))}"
