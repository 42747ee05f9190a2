"""Run the parts of ``make test-all``, and keep a ledger of when each was last green.

    python -m tests.parts                  runs the parts that were not green on this commit yet
    python -m tests.parts engine           runs one
    python -m tests.parts engine -- -k cut passes options to pytest; what came of it is not entered
    python -m tests.parts --show           writes reports/tests.md from the ledger
    python -m tests.parts test --load busy runs a tier, and enters what else the machine did

A line of the ledger, reports/tests.jsonl, is one run: part, commit, begin, machine, seconds, outcome and counts.
Parts that were interrupted are run again, the others are gone on with.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEDGER = ROOT / "reports" / "tests.jsonl"
PAGE = ROOT / "reports" / "tests.md"

_PIECE_BYTES = 4096

PYTEST = (sys.executable, "-m", "pytest", "tests")


@dataclass(frozen=True)
class Part:
    """What a part shows, and how: by the mark of its tests, or by a command of its own."""

    shows: str
    command: tuple[str, ...] = ()
    workers: int = 1

    @property
    def is_pytest(self) -> bool:
        """Return whether pytest runs this part, so that its options can be passed."""
        return not self.command or self.command[: len(PYTEST)] == PYTEST

    def command_of(self, name: str, options: Sequence[str] = ()) -> list[str]:
        """Return the command that runs this part under ``name``, with these options of pytest."""
        shared = ("-n", str(self.workers), "--dist", "loadfile", "--no-loadscope-reorder") if self.workers > 1 else ()
        return [*(self.command or (*PYTEST, "-m", name, *shared)), *options]


_MARKED = {
    "brokers": Part("more of each family of faults, drivers and workloads on brokers that run as processes", workers=2),
    "attached": Part("clusters of others: by ssh, by commands, in network namespaces of its own", workers=2),
    "installed": Part("the suite installed from a wheel, and its set-up"),
    "plays": Part("suites, sweeps, nights and jobs that play whole scenarios"),
    "browser": Part("the scripts of pages in Chromium", workers=2),
    "engine": Part("containers, on a container engine"),
    "kubernetes": Part("pods and jobs, on a Kubernetes"),
    "applications": Part("programs with the clients that people use, on a broker: each is prepared, and serves"),
    "generated": Part("many more generated cases than `check` has time for", workers=2),
}
_COMMANDS = {
    "properties": Part(
        "each property that Hypothesis checks, with 1,000 examples",
        (*PYTEST, "-m", "hypothesis", "--hypothesis-profile=many", "-n", "2", "--dist", "loadfile"),
    ),
    "histories": Part(
        "checkers against a slow reference, on 100,000 generated histories",
        (sys.executable, "-m", "tests.invariants.instants.count", "--cases", "100000", "--processes", "2"),
    ),
    "references": Part(
        "checkers against answers written from the documentation alone, on 20,000 generated histories each",
        (sys.executable, "-m", "tests.invariants.references.compared", "--cases", "20000", "--processes", "2"),
    ),
    "disks": Part(
        "cuts of power by the preloaded library against a second model, on 10,000 sequences of operations",
        (sys.executable, "-m", "tests.preload.compared", "--cases", "10000", "--processes", "2"),
    ),
    "taps": Part(
        "what a tap records and passes on against references, on 10,000 generated conversations and scripts of rules",
        (sys.executable, "-m", "tests.tap.compared", "--cases", "10000", "--processes", "2"),
    ),
    "mutants": Part("checkers changed in one place at a time: which changes do tests notice?", ("make", "mutants")),
}

#: The marks that put a test into a part of ``make test-all``.
MARKED_PARTS = frozenset(_MARKED)
PARTS = {**_MARKED, **_COMMANDS}
#: Tiers that are entered in the same ledger.
TIERS = {
    "check": Part("make check", ("make", "check")),
    "test": Part("make test", ("make", "test")),
    "ci": Part(".ci/run", (".ci/run",)),
}


@dataclass(frozen=True)
class Run:
    """One run of a part. ``outcome``: green, red or interrupted; ``counts``: the runner's closing words."""

    part: str
    commit: str
    began: str
    machine: str
    load: str
    took_s: int
    outcome: str
    counts: str


def runs() -> list[Run]:
    """Return the runs in the ledger, oldest first."""
    if not LEDGER.exists():
        return []
    return [Run(**json.loads(line)) for line in LEDGER.read_text(encoding="utf-8").splitlines()]


def commit() -> str:
    """Return the commit of the checkout, with ``+`` if tracked files differ from it."""
    described = ("git", "describe", "--always", "--dirty=+", "--exclude=*")
    return subprocess.run(described, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def run_part(name: str, part: Part, *, load: str = "idle", options: Sequence[str] = ()) -> Run:
    """Run a part, and enter what came of it in the ledger, unless ``options`` of pytest may have chosen among its
    tests."""
    began, began_s = datetime.now(UTC), time.monotonic()
    closing = ""
    outcome = "interrupted"
    at = commit()
    try:
        with subprocess.Popen(part.command_of(name, options), cwd=ROOT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while piece := os.read(process.stdout.fileno(), _PIECE_BYTES).decode(errors="replace"):
                print(piece, end="", flush=True)  # also of a line that has no end yet: dots of pytest
                closing = (closing + piece)[-_PIECE_BYTES:]
        outcome = "green" if process.returncode == 0 else "red"
    finally:
        run = Run(
            name,
            at,
            f"{began:%Y-%m-%dT%H:%MZ}",
            _machine(),
            load,
            round(time.monotonic() - began_s),
            outcome,
            _counts(closing),
        )
        if not options:
            with LEDGER.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(run)) + "\n")
    return run


def _machine() -> str:
    return f"{os.cpu_count()} processors, {platform.machine()}"


def _counts(closing: str) -> str:
    """Return the last closing line of pytest, as "12 passed, 3 skipped"."""
    found = re.findall(r"\d+ (?:passed|failed|skipped|error).*?(?= in [\d.]+s)", closing)
    return found[-1] if found else ""


def page() -> str:
    """Return the page of the ledger: for each part its last green run, and its last run where that was not green."""
    rows = [
        "| what | shows | last green | commit | took | counts | last run not green |",
        "|---|---|---|---|---|---|---|",
    ]
    entered = runs()
    for name, part in {**TIERS, **PARTS}.items():
        mine = [run for run in entered if run.part == name]
        green = next((run for run in reversed(mine) if run.outcome == "green"), None)
        other = mine[-1] if mine and mine[-1].outcome != "green" else None
        last_green = (green.began, green.commit, f"{green.took_s} s", green.counts) if green else ("never", "", "", "")
        cells = [name, part.shows, *last_green, f"{other.began}, {other.outcome}" if other else ""]
        rows.append(f"| {' | '.join(cells)} |")
    return _HEAD + "\n".join(rows) + "\n"


_HEAD = """\
# When tests were last green

Made from `reports/tests.jsonl` by `python -m tests.parts --show`. What a tier is: [docs/tests.md](../docs/tests.md).

"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PART", help=", ".join([*PARTS, *TIERS]))
    parser.add_argument("--load", default="idle", help="what else the machine did, for the ledger (idle)")
    parser.add_argument("--show", action="store_true", help="only write reports/tests.md")
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    options = arguments[len(ours) + 1 :]
    asked = parser.parse_args(ours)
    known = {**PARTS, **TIERS}
    if wrong := [name for name in asked.names if name not in known]:
        parser.error(f"no part {wrong[0]}; there are {', '.join(known)}")
    if others := [name for name in asked.names if options and not known[name].is_pytest]:
        parser.error(f"{others[0]} is not run by pytest, so it takes no options of pytest: {' '.join(options)}")
    red = []
    if not asked.show:
        green = {run.part for run in runs() if run.outcome == "green" and run.commit == commit()}
        left = [name for name, part in PARTS.items() if name not in green and (part.is_pytest or not options)]
        for name in asked.names or left:
            print(f"# {name}: {known[name].shows}", flush=True)
            if run_part(name, known[name], load=asked.load, options=options).outcome != "green":
                red.append(name)
    PAGE.write_text(page(), encoding="utf-8")
    if red:
        print(f"# not green: {', '.join(red)}")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
