"""Read from earlier nights when each scenario was last played, for machines that are new each night."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from rabbitmq_resilience.extensions.nights.night_file import Night, NightFileError, find_nights, read_night
from rabbitmq_resilience.plugin.session_pace import PlayedRun


def earlier_nights(folder: Path) -> tuple[list[Night], list[str]]:
    """Return all nights in a folder that can be read, oldest first, and a message for each other file."""
    nights, troubles = [], []
    for path in find_nights(folder):
        try:
            nights.append(read_night(path))
        except NightFileError as error:
            troubles.append(str(error))
    return nights, troubles


def last_played(nights: Iterable[Night], *, name: str | None, driver: str) -> dict[str, PlayedRun]:
    """Return {scenario: how long it took, and when it ended, the last time}.

    Only nights of that name and driver count, as others may share the folder. A night that was killed counts with what
    it had played."""
    known: dict[str, PlayedRun] = {}
    for night in nights:
        if (night.header.name, night.header.driver) == (name, driver):
            known |= dict(_played(night))
    return known


def _played(night: Night) -> Iterator[tuple[str, PlayedRun]]:
    ended = {test.scenario: test for test in night.tested}
    for scenario in dict.fromkeys(run.scenario for run in night.played):
        if scenario in ended:
            yield scenario, PlayedRun(took_s=ended[scenario].took_s, at_s=_seconds(ended[scenario].at))
        else:
            runs = [run for run in night.played if run.scenario == scenario]
            took_s = sum(run.duration_s or 0.0 for run in runs)
            yield scenario, PlayedRun(took_s=took_s, at_s=_seconds(runs[-1].started_at or night.header.night))


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
