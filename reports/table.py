"""The table of all scenarios and their verdicts on each driver and broker version, made from run directories.

.venv/bin/python -m reports.table reports/runs [MORE ...] > docs/verdicts.md
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.run_directory import RunDirectory, RunDirectoryError
from reports.words import NOTHING, WORDS, short_verdict, verdict_word

_HEAD = """# Verdicts

Generated from run directories by `python -m reports.table`. Each cell tells the last verdict on that broker version, as
processes or in containers, and how many runs ended how; *known* marks a violation that the scenario expects, with its
reference below the table.
"""


@dataclass(frozen=True, order=True)
class Scenario:
    """What makes one row."""

    name: str
    topology: str
    handling: str
    queue_type: str


@dataclass(frozen=True)
class Platform:
    """What makes one column."""

    version: str
    driver: str

    def __str__(self) -> str:
        return self.version if self.driver == "local" else f"{self.version} in containers"

    def __lt__(self, other: Platform) -> bool:
        return (_numbers(self.version), str(self)) < (_numbers(other.version), str(other))


def platform(verdict: Mapping[str, Any]) -> Platform:
    return Platform(str(verdict["broker_version"]), str(verdict.get("driver", "local")))


def table(verdicts: Iterable[Mapping[str, Any]]) -> str:
    """Markdown, of verdicts in the order of their runs."""
    cells: dict[Scenario, dict[Platform, list[Mapping[str, Any]]]] = {}
    for verdict in verdicts:
        scenario = _scenario(verdict)
        cells.setdefault(scenario, {}).setdefault(platform(verdict), []).append(verdict)
    platforms = sorted({platform for row in cells.values() for platform in row})
    head = ("Scenario", "Topology", "Partition handling", "Queues", *map(str, platforms))
    rows = [
        (s.name, s.topology, s.handling, s.queue_type, *(_cell(row.get(platform, ())) for platform in platforms))
        for s, row in sorted(cells.items())
    ]
    lines = [table_line(head), table_line(["---"] * len(head)), *map(table_line, rows)]
    return "\n".join([_HEAD, *lines, *_references(cells)]) + "\n"


def _scenario(verdict: Mapping[str, Any]) -> Scenario:
    fields = [str(verdict.get(name, NOTHING)) for name in ("topology", "partition_handling", "queue_type")]
    name = str(verdict["title"])
    for field in reversed(fields):
        name = name.removesuffix(f", {field}")
    return Scenario(name, *fields)


def _cell(runs: Sequence[Mapping[str, Any]]) -> str:
    if not runs:
        return NOTHING
    counts = Counter(map(verdict_word, runs))
    last = short_verdict(runs[-1])
    if len(counts) == 1:
        return f"{last}, {len(runs)} of {len(runs)}"
    return f"{last}; " + ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word])


def _references(cells: Mapping[Scenario, Mapping[Platform, Sequence[Mapping[str, Any]]]]) -> list[str]:
    known: dict[str, None] = {}
    for scenario, row in sorted(cells.items()):
        for where, runs in row.items():
            for run in runs:
                expected, reference = run.get("expected", "VALID"), run.get("reference") or "no reference"
                if expected != "VALID" and run.get("as_expected"):
                    known[f"- {scenario.name}, {scenario.queue_type}, {where}: {expected}; {reference}"] = None
    return ["", "Known violations:", "", *known] if known else []


def table_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def recorded_by_name(roots: Iterable[Path]) -> list[tuple[str, Mapping[str, Any]]]:
    """The verdicts of all runs below the folders, with the names of their directories, oldest first; runs without one,
    or of no known broker, are not in."""
    runs = sorted((run for root in roots for run in root.iterdir() if run.is_dir()), key=lambda run: run.name)
    verdicts: list[tuple[str, Mapping[str, Any]]] = []
    for run in runs:
        try:
            verdict = RunDirectory(run).read_verdict()
        except RunDirectoryError:
            continue
        if verdict.get("title") and verdict.get("broker_version"):
            verdicts.append((run.name, verdict))
    return verdicts


def recorded(roots: Iterable[Path]) -> list[Mapping[str, Any]]:
    """Only the verdicts."""
    return [verdict for _, verdict in recorded_by_name(roots)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders that hold run directories")
    print(table(recorded(parser.parse_args().runs)), end="")


if __name__ == "__main__":
    main()
