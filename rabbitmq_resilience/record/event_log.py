"""Writes events to a file, a line each, and reads them again.

Lines have a number ``n``, from 0 on, so that one which is missing is noticed; those of version 1 have none.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rabbitmq_resilience.record.events import KINDS, Event, EventError, event_of
from rabbitmq_resilience.record.history import now_us, write_all

EVENTS_FILE = "events.jsonl"


class EventLog:
    """Appends events to a file; safe to share between threads. Each event is in the kernel on return."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = path.open("ab", buffering=0)
        self._next = path.read_bytes().count(b"\n")  # of those who wrote to it before

    def record(self, kind: str, **told: Any) -> Event:
        """An event of now, unless its fields have a ``t_us``. Raises TypeError for fields that its kind has not."""
        with self._lock:
            event = KINDS[kind](**{"t_us": now_us(), **told})
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
    """All events of the files in the order of their times; a last line cut short by a crash is left out. Raises
    EventError."""
    events = []
    for path in paths:
        for _, event in _lines(path):
            if isinstance(event, EventError):
                raise event
            events.append(event)
    yield from sorted(events, key=lambda event: event.t_us)


def examine_events(*paths: Path, numbered: bool) -> tuple[list[Event], list[str]]:
    """The events that can be understood, in the order of their times, and what is wrong with the files, for people.
    ``numbered``: whether lines have to be."""
    events: list[Event] = []
    troubles = []
    for path in paths:
        due = 0
        for number, event in _lines(path):
            if isinstance(event, EventError):
                troubles.append(str(event))
            elif numbered and number != due:
                troubles.append(f"{_told(path)} lacks events: number {due} should come, and number {number} does")
                events.append(event)
            else:
                events.append(event)
            due = number + 1 if isinstance(number, int) else due + 1
        if path.exists() and not path.read_bytes().endswith(b"\n"):
            troubles.append(f"{_told(path)} is empty, or ends in the middle of a line")
    return sorted(events, key=lambda event: event.t_us), troubles


def _lines(path: Path) -> Iterator[tuple[Any, Event | EventError]]:
    """The number that each line has and what it says; nothing of a file that is not there."""
    try:
        *lines, _ = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    for place, line in enumerate(lines, 1):
        number = None
        try:
            told = json.loads(line)
            number = told.get("n")
            yield number, event_of(told)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            yield number, EventError(f"{_told(path)}, line {place}, holds no event: {error}")


def _told(path: Path) -> str:
    return path.name if path.name == EVENTS_FILE else f"{path.parent.name}/{path.name}"
