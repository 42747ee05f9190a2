"""Play one whole night with pytest and collect its results; CI services and ``make nightly`` call this.

::

    <to>/
        night.jsonl      the file of the night (a copy; the original is in the folder of nights)
        junit.xml        the results for machines
        summary.md       the results for people; on GitHub also in the summary of the job
        runs/            the pages of this night's runs with an index; the whole directories of unexpected runs
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rabbitmq_resilience.extensions.nights.called import run_pytest
from rabbitmq_resilience.extensions.nights.last_played import earlier_nights
from rabbitmq_resilience.extensions.nights.night_file import Night, NightFileError, find_nights, read_night
from rabbitmq_resilience.extensions.nights.night_summary import summary
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.report.index import write_index

#: The meaning of each exit status; 0 to 5 are pytest's own.
MEANINGS: Mapping[int, str] = {
    0: "everything ended as expected",
    1: "broken: a promise was broken, or a test failed in another way",
    2: "interrupted",
    3: "pytest itself failed",
    4: "pytest was called in a wrong way",
    5: "no scenario was found",
    10: "unknown: no promise was seen to be broken, but not every run came to a verdict",
    124: "the time limit was reached, and the night was ended",
}
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


def main(arguments: Sequence[str], *, program: str) -> int:
    """Play a night; return pytest's exit status, LIMIT_REACHED, or 128 plus the number of the signal that killed it."""
    given, for_pytest = _parser(program).parse_known_args(list(arguments))
    fresh = Path("reports/night") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    to, nights, runs = (folder.resolve() for folder in (given.to or fresh, given.nights, given.runs))
    if to.exists() and any(to.iterdir()):
        print(f"{to} is not empty: name another folder (--to), or move its contents away", file=sys.stderr)
        return 4
    to.mkdir(parents=True, exist_ok=True)
    before = set(find_nights(nights)) if nights.exists() else set()
    command = [sys.executable, "-m", "pytest", f"--junitxml={to / 'junit.xml'}", f"--resilience-nights-dir={nights}"]
    command += [f"--resilience-runs-dir={runs}", *for_pytest]
    print(f"nightly: {shlex.join(command)}", flush=True)
    status = run_pytest(command, limit_s=None if given.limit_min is None else 60 * given.limit_min)
    files = [path for path in find_nights(nights) if path not in before] if nights.exists() else []
    for file in files[-1:]:
        _collect(file, to=to, runs=runs)
    print(f"nightly: status {status}, {MEANINGS.get(status, 'killed')}; the results are in {to}", flush=True)
    return status


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Play one night with pytest, which takes all other options, and collect the results.",
        allow_abbrev=False,
    )
    parser.add_argument("--to", type=Path, help="an empty folder (a new one in reports/night)")
    parser.add_argument(
        "--nights",
        type=Path,
        default=Path("reports/nights"),
        help="the folder with a file for each night (%(default)s)",
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("reports/runs"), help="where run directories go (%(default)s)"
    )
    parser.add_argument("--limit-min", type=float, help="end the night after this many minutes (no limit)")
    return parser


def _collect(file: Path, *, to: Path, runs: Path) -> None:
    """Copy the night's file and write its summary and pages; also for a night that was killed."""
    shutil.copyfile(file, to / "night.jsonl")
    try:
        night = read_night(file)
    except NightFileError as error:
        print(f"nightly: {error}", file=sys.stderr)
        return
    text = summary(night, earlier_nights(file.parent)[0], runs=runs)
    (to / "summary.md").write_text(text, encoding="utf-8")
    shown = os.environ.get(STEP_SUMMARY)
    if shown:
        with Path(shown).open("a", encoding="utf-8") as step:
            step.write(text)
    _collect_runs(night, to=to / "runs", runs=runs)


def _collect_runs(night: Night, *, to: Path, runs: Path) -> None:
    to.mkdir()
    for played in night.played:
        run, kept = RunDirectory(runs / played.run), RunDirectory(to / played.run)
        if not run.path.is_dir():
            continue
        if not played.as_expected:
            shutil.copytree(run.path, kept.path)
            continue
        kept.path.mkdir()
        for source in (run.verdict_file, run.report, run.fault_file):
            if source.exists():
                shutil.copyfile(source, kept.path / source.name)
    write_index(to)
