"""Write events to a file, one per line, and read them again.

Lines have a number ``n``, from 0 on, so that a missing line is noticed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rabbitmq_resilience.history.events import KINDS, Event, EventError, event_of
from rabbitmq_resilience.history.history import now_us, write_all

EVENTS_FILE = "events.jsonl"


class EventLog:
    """Append events to a file; safe to share between threads. Each event is in the kernel on return."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = path.open("ab", buffering=0)
        self._next = path.read_bytes().count(b"\n")  # continues the numbers of earlier writers

    def record(self, kind: str, **values: Any) -> Event:
        """Write an event and return it. Its moment is now, unless the fields have a ``t_us``. Raise TypeError for
        fields that its kind does not have."""
        with self._lock:
            event = KINDS[kind](**{"t_us": now_us(), **values})
            line = json.dumps({"n": self._next, **event.as_fields()}, separators=(",", ":")) + "\n"
            write_all(self._file, line.encode())
            self._next += 1
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_events(*paths: Path) -> Iterator[Event]:
    """Yield all events of the files in the order of their times. A last line that a crash cut short is left out. Raise
    EventError for a line that is no event."""
    events = []
    for path in paths:
        for _, event in _lines(path):
            if isinstance(event, EventError):
                raise event
            events.append(event)
    yield from sorted(events, key=lambda event: event.t_us)


class GrowingEvents:
    """Read the events of a file while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0

    def new(self) -> list[Event]:
        """Return the events since the last call, in the order of the file; none if it does not exist yet. A line that
        is not complete is left for the next call. Raise EventError for a line that is no event."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                lines = file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        whole = [line for line in lines if line.endswith(b"\n")]
        self._read_bytes += sum(map(len, whole))
        try:
            return [event_of(json.loads(line)) for line in whole]
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise EventError(f"{_shown(self._path)} has a line that holds no event: {error}") from error


def examine_events(*paths: Path) -> tuple[list[Event], list[str]]:
    """Return the events that can be understood, in the order of their times, and the files' problems, for people."""
    events: list[Event] = []
    problems = []
    for path in paths:
        due = 0
        for number, event in _lines(path):
            if isinstance(event, EventError):
                problems.append(str(event))
            elif number != due:
                problems.append(f"{_shown(path)} lacks events: number {due} is expected, and number {number} follows")
                events.append(event)
            else:
                events.append(event)
            due = number + 1 if isinstance(number, int) else due + 1
        if path.exists() and not path.read_bytes().endswith(b"\n"):
            problems.append(f"{_shown(path)} is empty, or ends in the middle of a line")
    return sorted(events, key=lambda event: event.t_us), problems


def _lines(path: Path) -> Iterator[tuple[Any, Event | EventError]]:
    """Yield the number of each line, and its event or error; nothing if the file does not exist."""
    try:
        *lines, _ = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    for place, line in enumerate(lines, 1):
        number = None
        try:
            recorded = json.loads(line)
            number = recorded.get("n")
            yield number, event_of(recorded)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            yield number, EventError(f"{_shown(path)}, line {place}, holds no event: {error}")


def _shown(path: Path) -> str:
    return path.name if path.name == EVENTS_FILE else f"{path.parent.name}/{path.name}"
