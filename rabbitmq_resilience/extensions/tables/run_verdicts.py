"""Read the verdicts of run directories, and name their platforms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rabbitmq_resilience.history.run_directory import RunDirectory, RunDirectoryError

#: {driver: the words for it after the version in the name of a platform}.
_WHERE = {
    "local": "",
    "docker": " in containers",
    "attached by ssh": " on machines",
    "attached by kubernetes": " in pods",
    "attached by commands": " by commands",
}


@dataclass(frozen=True)
class Platform:
    """The version and the driver of a column."""

    version: str
    driver: str

    def __str__(self) -> str:
        return f"{self.version}{_WHERE.get(self.driver, f', {self.driver}')}"

    def __lt__(self, other: Platform) -> bool:
        return (_numbers(self.version), str(self)) < (_numbers(other.version), str(other))


def platform(verdict: Mapping[str, Any]) -> Platform:
    """Return the platform of a verdict."""
    return Platform(str(verdict["broker_version"]), str(verdict.get("driver", "local")))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def recorded_by_name(roots: Iterable[Path]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (name of the run directory, verdict) of all runs below the folders, oldest first.

    Runs without a verdict, or without a known version of the broker, are left out."""
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
    """Return the verdicts of ``recorded_by_name``."""
    return [verdict for _, verdict in recorded_by_name(roots)]
