"""The table of all scenarios and their verdicts on each driver and broker version, made from run directories.

.venv/bin/python -m rabbitmq_resilience.tables.verdicts reports/runs [MORE ...] > verdicts.md

`reports/verdicts.md` is of the ledger (`tables/by_version.py`); this is of run directories that one has.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rabbitmq_resilience.pages.impact import longest_of
from rabbitmq_resilience.pages.wording import NOTHING, WORDS, short_verdict, verdict_word
from rabbitmq_resilience.record.run_directory import RunDirectory, RunDirectoryError
from rabbitmq_resilience.tables.markdown import TEMPLATES, markdown


@dataclass(frozen=True, order=True)
class Scenario:
    """What makes one row."""

    name: str
    topology: str
    handling: str
    queue_type: str


#: By driver, how a platform is told after its version.
_WHERE = {
    "local": "",
    "docker": " in containers",
    "attached by ssh": " on machines",
    "attached by kubernetes": " in pods",
    "attached by commands": " by commands",
}


@dataclass(frozen=True)
class Platform:
    """What makes one column."""

    version: str
    driver: str

    def __str__(self) -> str:
        return f"{self.version}{_WHERE.get(self.driver, f', {self.driver}')}"

    def __lt__(self, other: Platform) -> bool:
        return (_numbers(self.version), str(self)) < (_numbers(other.version), str(other))


@dataclass(frozen=True)
class Seen:
    """What makes one cell: the last verdict, how many of all runs ended how, and their longest outage."""

    last: str
    runs: int
    counts: Mapping[str, int]
    outages: str


@dataclass(frozen=True)
class Violation:
    """One that is expected of all scenarios of that name on that platform."""

    scenario: str
    queue_type: str
    platform: Platform
    expected: str
    reference: str


def platform(verdict: Mapping[str, Any]) -> Platform:
    return Platform(str(verdict["broker_version"]), str(verdict.get("driver", "local")))


def table(verdicts: Iterable[Mapping[str, Any]]) -> str:
    """Markdown, of verdicts in the order of their runs."""
    cells: dict[Scenario, dict[Platform, list[Mapping[str, Any]]]] = {}
    for verdict in verdicts:
        scenario = _scenario(verdict)
        cells.setdefault(scenario, {}).setdefault(platform(verdict), []).append(verdict)
    rows = dict(sorted(cells.items()))
    return markdown(
        TEMPLATES / "verdicts.md.j2",
        platforms=sorted({platform for row in cells.values() for platform in row}),
        rows={scenario: {platform: _seen(runs) for platform, runs in row.items()} for scenario, row in rows.items()},
        known=list(dict.fromkeys(_known(rows))),
    )


def _scenario(verdict: Mapping[str, Any]) -> Scenario:
    fields = [str(verdict.get(name, NOTHING)) for name in ("topology", "partition_handling", "queue_type")]
    name = str(verdict["title"])
    for field in reversed(fields):
        name = name.removesuffix(f", {field}")
    return Scenario(name, *fields)


def _seen(runs: Sequence[Mapping[str, Any]]) -> Seen:
    counts = Counter(map(verdict_word, runs))
    return Seen(
        short_verdict(runs[-1]), len(runs), {word: counts[word] for word in WORDS if counts[word]}, longest_of(runs)
    )


def _known(rows: Mapping[Scenario, Mapping[Platform, Sequence[Mapping[str, Any]]]]) -> Iterator[Violation]:
    for scenario, row in rows.items():
        for where, runs in row.items():
            for run in runs:
                expected = str(run.get("expected", "VALID"))
                if expected != "VALID" and run.get("as_expected"):
                    reference = str(run.get("reference") or "no reference")
                    yield Violation(scenario.name, scenario.queue_type, where, expected, reference)


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
