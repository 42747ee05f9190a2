"""Read what a program says of its own work: lines of JSON, in a file that its environment names."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

#: The variable in which each process finds the path of its file.
WORK_VARIABLE = "RABBITMQ_RESILIENCE_EVENTS"
WORK_SUFFIX = ".work.jsonl"

WORKED_ON, COMMITTED = "worked_on", "committed"
_LINE_BYTES_MAX = 64 << 10
#: Epoch seconds are less than this; milliseconds are more.
_EPOCH_S_MAX = 1e11


class WorkLine(NamedTuple):
    """A line: the event, the message that it names, and its moment in epoch seconds, None if it states none."""

    event: str
    message_id: str
    at_s: float | None


class UnreadLineError(ValueError):
    """A line says nothing of work; the text says why."""


@dataclass
class WorkOfProcess:
    """What a process wrote, in all its lives. ``unread``: how many lines say nothing that can be understood;
    ``first_unread``: the first of them, with its file and its number."""

    lines: list[WorkLine] = field(default_factory=list)
    unread: int = 0
    first_unread: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.lines and not self.unread

    def take(self, path: Path) -> None:
        """Read a file, if it is there. No content makes this fail."""
        try:
            with _opened(path) as file:
                for number, line in enumerate(_lines_of(file), 1):
                    try:
                        if line.strip():
                            self.lines.append(work_line(line))
                    except UnreadLineError as error:
                        self._pass_over(f"{path.parent.name}/{path.name}, line {number}, {error}")
        except FileNotFoundError:
            return
        except OSError as error:
            self._pass_over(f"{path.parent.name}/{path.name} cannot be read: {error.strerror or error}")

    def _pass_over(self, what: str) -> None:
        self.unread += 1
        self.first_unread = self.first_unread or what


def work_path(logs: Path, process: str, life: int) -> Path:
    """Return the file of one life of a process. What a killed process left unfinished does not damage the next."""
    return logs.resolve() / f"{process}.{life}{WORK_SUFFIX}"


def read_work(logs: Path, process: str, lives: Iterable[int]) -> WorkOfProcess:
    """Read the files of a process."""
    found = WorkOfProcess()
    for life in lives:
        found.take(work_path(logs, process, life))
    return found


def work_line(line: bytes) -> WorkLine:
    """Return what a line says. Raise UnreadLineError if it says nothing of work."""
    if len(line) >= _LINE_BYTES_MAX:
        raise UnreadLineError(f"is longer than {_LINE_BYTES_MAX >> 10} KiB")
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise UnreadLineError("is no JSON") from None
    if not isinstance(said, dict):
        raise UnreadLineError("is no object of JSON")
    event, message_id = said.get("event"), said.get("message_id")
    if event not in (WORKED_ON, COMMITTED):  # it may be of any type
        raise UnreadLineError(f"has no event {WORKED_ON} or {COMMITTED}")
    if not isinstance(message_id, str):
        raise UnreadLineError("has no message_id that is a text")
    return WorkLine(event, message_id, _moment(said.get("at")))


def _moment(at: Any) -> float | None:
    if at is None:
        return None
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < _EPOCH_S_MAX or not math.isfinite(at):
        raise UnreadLineError('has an "at" that is no number of seconds since 1970')
    return float(at)


def _opened(path: Path) -> IO[bytes]:
    """Open a plain file. Raise OSError for anything else that a program may have put in its place."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError("it is no plain file")
    return os.fdopen(number, "rb")


def _lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines, of each no more than its first 64 KiB."""
    while line := file.readline(_LINE_BYTES_MAX):
        rest = line
        while len(rest) == _LINE_BYTES_MAX and not rest.endswith(b"\n"):
            rest = file.readline(_LINE_BYTES_MAX)
        yield line
