"""Read and write the file of one night: JSON lines, written during the night, so that a killed night keeps its runs.

::

    <nights>/20261122T010000Z-local.jsonl
        {"is": "night", ...}      the first line: the time, the machine, the suite
        {"is": "left_out", ...}   one for each scenario for which there is no time
        {"is": "played", ...}     one for each run of a scenario, written when the run is judged
        {"is": "tested", ...}     one for each scenario when pytest is done with it, after its runs
        {"is": "ended", ...}      the last line; a night without this line was killed, or goes on

Moments are texts of ISO 8601 in UTC. Unknown values are null. A reader ignores fields that it does not know.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

from pydantic import TypeAdapter, ValidationError

from rabbitmq_resilience.runner.run_line import RunLine

FORMAT = 1

#: ``unknown``: the test failed only because its run came to no verdict.
Outcome = Literal["passed", "failed", "unknown", "skipped", "xfailed"]


class NightFileError(Exception):
    """A file is no night, or is damaged. The text says which file, where, and what is wrong."""


@dataclass(frozen=True, kw_only=True)
class NightMachine:
    """The machine of a night. ``id``: a short hash that identifies the machine without naming it."""

    cpus: int
    memory_gb: float
    cpu_model: str
    kernel: str
    id: str


@dataclass(frozen=True, kw_only=True)
class Header:
    """The first line of a night.

    ``night``: when it began. ``name``: given by the user, such as the name of a CI job. ``suite_commit``: of the
    checkout whose scenarios are played, if known. ``budget_min``: None if everything is to be played. ``planned``: the
    scenarios that were to be played; empty in files of early versions."""

    kind: ClassVar[str] = "night"

    night: str
    name: str | None
    suite_version: str
    suite_commit: str | None
    machine: NightMachine
    driver: str
    budget_min: float | None
    format: int = FORMAT
    planned: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A scenario that was not played.

    ``why``: ``budget`` (it did not fit into the time) or ``over`` (the time was over when its turn came).
    ``last_played``: None if unknown."""

    kind: ClassVar[str] = "left_out"

    scenario: str
    why: str
    last_played: str | None


@dataclass(frozen=True, kw_only=True)
class Tested:
    """The outcome of a scenario's test.

    ``why``: the first line of what failed, or why it was skipped; empty if it passed. A scenario may be played several
    times; it passes if its last run ended as expected. ``took_s``: with all runs, set-up and judging."""

    kind: ClassVar[str] = "tested"
    __test__: ClassVar[bool] = False  # pytest takes classes of such names for tests

    scenario: str
    outcome: Outcome
    why: str
    took_s: float
    at: str


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a night.

    ``status``: pytest's exit status; 10 if no run was INVALID or failed, but some were UNKNOWN."""

    kind: ClassVar[str] = "ended"

    status: int
    played: int
    at: str


Line = Header | RunLine | LeftOut | Tested | Ended

_READERS: Mapping[str, TypeAdapter[Any]] = {
    kind.kind: TypeAdapter(kind) for kind in (Header, RunLine, LeftOut, Tested, Ended)
}


@dataclass(frozen=True)
class Night:
    """A night that was read. ``torn``: whether its last line is incomplete and left out."""

    path: Path
    header: Header
    played: Sequence[RunLine]
    left_out: Sequence[LeftOut]
    ended: Ended | None
    torn: bool = False
    tested: Sequence[Tested] = ()

    @property
    def not_reached(self) -> list[str]:
        """Return the scenarios that were planned and have had no turn until the end of the night, or until now."""
        had = {scenario for lines in (self.played, self.tested, self.left_out) for scenario in _scenarios(lines)}
        return [scenario for scenario in self.header.planned if scenario not in had]

    @classmethod
    def of(cls, path: Path, lines: Sequence[Line], *, torn: bool = False) -> Self:
        """Make a night of the lines of a file. Raise NightFileError if the first line is no header."""
        if not lines or not isinstance(lines[0], Header):
            raise NightFileError(f'{path} is no night: its first line is not one with "is": "night"')
        return cls(
            path,
            lines[0],
            [line for line in lines if isinstance(line, RunLine)],
            [line for line in lines if isinstance(line, LeftOut)],
            next((line for line in lines if isinstance(line, Ended)), None),
            torn,
            [line for line in lines if isinstance(line, Tested)],
        )


def _scenarios(lines: Iterable[RunLine | Tested | LeftOut]) -> Iterator[str]:
    return (line.scenario for line in lines)


class NightWriter:
    """Append lines to the file of a night. Each line is synced to the disk and so survives a crash of the machine."""

    def __init__(self, path: Path, header: Header) -> None:
        """Create the file and write the header. Raise FileExistsError if the file exists."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("xb", buffering=0)
        self.write(header)

    @classmethod
    def in_folder(cls, folder: Path, name: str, header: Header) -> Self:
        """Create ``name.jsonl`` in ``folder``, with a number in its name if it exists. Raise OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        return cls(next(path for n in names if not (path := folder / f"{n}.jsonl").exists()), header)

    def write(self, line: Line) -> None:
        text = json.dumps({"is": line.kind, **asdict(line)}, ensure_ascii=False, separators=(",", ":"))
        self._file.write(text.encode() + b"\n")
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_night(path: Path) -> Night:
    """Read a night; an incomplete last line is left out. Raise NightFileError if the file is damaged."""
    try:
        *whole, rest = path.read_bytes().split(b"\n")
    except OSError as error:
        raise NightFileError(f"{path} cannot be read: {error.strerror or error}") from None
    lines = [_line(path, number, text) for number, text in enumerate(whole, 1)]
    return Night.of(path, lines, torn=bool(rest))


def find_nights(folder: Path) -> list[Path]:
    """Return all files below ``folder`` that begin with the header of a night, ordered by when the nights began."""
    found = [(begun, path) for path in sorted(folder.rglob("*.jsonl")) if (begun := _begun(path)) is not None]
    return [path for _, path in sorted(found)]


def _line(path: Path, number: int, text: bytes) -> Line:
    try:
        fields = json.loads(text)
        kind = fields.pop("is")
        reader = _READERS[kind]
    except (ValueError, KeyError, AttributeError, TypeError):
        kinds = ", ".join(_READERS)
        raise NightFileError(f'{path}, line {number}: no JSON object whose "is" is one of {kinds}') from None
    if kind == Header.kind and fields.get("format") != FORMAT:
        raise NightFileError(
            f"{path}, line {number}, format: it is {fields.get('format')!r}, but this program reads {FORMAT}; "
            "read it with the version of the suite that wrote it, or a newer one"
        )
    try:
        line: Line = reader.validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise NightFileError(f"{path}, line {number}, {where}: {first['msg']}") from None
    return line


def _begun(path: Path) -> str | None:
    """Return when the night in this file began; None if the file is no night."""
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError):
        return None
    return str(first.get("night")) if isinstance(first, Mapping) and first.get("is") == Header.kind else None
