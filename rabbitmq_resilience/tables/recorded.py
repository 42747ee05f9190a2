"""Read the verdicts of run directories, and name the platforms that they are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rabbitmq_resilience.record.run_directory import RunDirectory, RunDirectoryError

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


def platform(verdict: Mapping[str, Any]) -> Platform:
    return Platform(str(verdict["broker_version"]), str(verdict.get("driver", "local")))


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
