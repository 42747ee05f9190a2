"""Keep results of the project's own sweeps next to the sweep files: rows of runs, tables and findings.

    .venv/bin/python -m rabbitmq_resilience.extensions.sweeps.kept keep reports/sweeps/noise
    .venv/bin/python -m rabbitmq_resilience.extensions.sweeps.kept show > sweeps/results/README.md

``keep`` copies the results in the folders into ``sweeps/results/NAME`` and makes tables and pages there. For a folder
that is itself in ``sweeps/results`` it only makes them again, as CI does: git ignores the pages, which nothing links
to, and has the rows from which they are made. ``findings.md`` in the same folder is written by hand and
stays: it says which publications the results agree with.
"""

from __future__ import annotations

import argparse
import os.path
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.extensions.sweeps.comparison_page import write_comparisons
from rabbitmq_resilience.extensions.sweeps.results import Of, Results, ResultsError
from rabbitmq_resilience.extensions.sweeps.sweep_file import SweepFileError, load
from rabbitmq_resilience.extensions.sweeps.sweep_page import write_page
from rabbitmq_resilience.extensions.sweeps.sweep_summary import TEMPLATES
from rabbitmq_resilience.extensions.sweeps.table import write_tables
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.report.wording import NOTHING
from rabbitmq_resilience.sut.drivers import FORMING
from rabbitmq_resilience.tools.locations import content

SWEEPS = content("sweeps")
FINDINGS = "findings.md"
#: The files from which all others are made.
_KEPT = ("runs.jsonl", "sweep.yaml")


def keep(folder: Path, *, sweeps: Path = SWEEPS) -> Path:
    """Keep the results in ``folder``, and return the folder where they are kept.

    Raise ResultsError if they are results of another file than the one of that name in ``sweeps``; SweepFileError if
    that file cannot be read."""
    results = Results.read(folder)
    file = sweeps / f"{folder.name}.sweep.yaml"
    if results.of is None:
        raise ResultsError(f"{folder} holds no results of a sweep")
    if not file.is_file() or file.read_text(encoding="utf-8") != (folder / "sweep.yaml").read_text(encoding="utf-8"):
        raise ResultsError(f"{folder} holds results of another file than {file}")
    sweep = load(file, driver=results.of.driver if results.of.driver in FORMING else "local")
    kept = sweeps / "results" / folder.name
    is_kept = kept.exists() and kept.samefile(folder)
    if not is_kept and results.of.digest != sweep.digest:  # the suite may have changed since results were kept
        other = "another base, other prices, other files that cells name, or another version of the suite"
        raise ResultsError(f"{folder} was played with {other}")
    kept.mkdir(parents=True, exist_ok=True)
    for old in kept.iterdir():
        if old.name not in (FINDINGS, *_KEPT):
            old.unlink()
    if not is_kept:
        for name in _KEPT:
            shutil.copyfile(folder / name, kept / name)
    results = Results.read(kept)
    write_tables(results, sweep)
    write_page(results, sweep, None)
    write_comparisons(results, sweep.spec)
    return kept


@dataclass(frozen=True)
class Kept:
    """Kept results. ``findings``: Markdown for a page one folder up; empty if there is no findings.md."""

    name: str
    of: Of
    results: Results
    findings: str

    @property
    def ended(self) -> str:
        """Return how many runs have each status, such as ``96 measured, 4 not held``."""
        counts = Counter(line.status for line in self.results.final)
        return ", ".join(f"{count} {status}" for status, count in counts.items())

    @property
    def commit(self) -> str:
        """Return the short commit, with ``-dirty`` if files were changed."""
        commit, changed, _ = (self.of.commit or NOTHING).partition("-dirty")
        return commit[:10] + changed

    @property
    def hours(self) -> str:
        """Return how many hours all runs took together."""
        return f"{sum(line.took_s or 0 for line in self.results.lines) / 3600:.1f}"


def all_kept(sweeps: Path = SWEEPS) -> list[Kept]:
    """Return all kept results, ordered by name. Raise ResultsError if one cannot be read."""
    found = []
    for folder in sorted(path.parent for path in (sweeps / "results").glob("*/runs.jsonl")):
        results = Results.read(folder)
        assert results.of is not None, "it has a first line"
        findings = folder / FINDINGS
        text = findings.read_text(encoding="utf-8").strip() if findings.is_file() else ""
        found.append(Kept(folder.name, results.of, results, _one_level_up(text, folder.name)))
    return found


def _one_level_up(text: str, folder: str) -> str:
    """Return the Markdown of a page in ``folder`` with its links changed for a page one folder up."""

    def target(link: re.Match[str]) -> str:
        return f"]({os.path.normpath(f'{folder}/{link[1]}')}"

    return re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)", target, text)


def page(kept: Sequence[Kept]) -> str:
    """Return the page of all kept results as Markdown."""
    return markdown(TEMPLATES / "kept.md.j2", kept=kept)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("keep").add_argument("folders", nargs="+", type=Path)
    commands.add_parser("show")
    arguments = parser.parse_args()
    try:
        if arguments.command == "show":
            print(page(all_kept()), end="")
        else:
            for folder in arguments.folders:
                print(keep(folder))
    except (ResultsError, SweepFileError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
