"""Read and write the results of a sweep: a folder that is written run by run, so that a later session can go on.

::

    reports/sweeps/flow_control/
        sweep.yaml      the sweep file that it is the result of
        runs.jsonl      a first line with what all runs have in common, then one line for each judged run
        runs.csv, runs.parquet   the same as a table
        table.md        medians with intervals, a line each cell
        index.html      the page
        comparison-2-LABEL.md, .html   if an axis is compared: its second label compared with the first

Results of two machines, commits, broker versions or sweep files are never mixed.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

from rabbitmq_resilience.history.whole_files import write_whole

FORMAT = 1

#: ``measured``: the run's numbers count, though it may have broken a promise. ``not held``: this machine did not hold
#: the load. ``unknown``: the run has no verdict. ``disturbed``: other programs kept this machine busy during the run.
#: ``broken off``: the run did not come to its end.
Status = Literal["measured", "not held", "unknown", "disturbed", "broken off"]

#: The sweep file of the results, in their folder.
STATED = "sweep.yaml"
#: The word for infinity in files, as JSON has none.
NEVER = "never"


class ResultsError(Exception):
    """Results cannot be read or continued. The text says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Of:
    """What all results of one sweep have in common.

    ``digest``: of the sweep file and of every cell. ``machine``: a short hash; ``machine_told``: its description for
    people. ``commit``: of the checkout, if known. ``cluster``: the name of an attached cluster, else empty."""

    title: str
    digest: str
    machine: str
    machine_told: str
    commit: str | None
    suite_version: str
    broker_version: str
    driver: str
    began: str
    cluster: str = ""
    format: int = FORMAT


def _read(value: Any) -> Any:
    if value == NEVER:
        return math.inf
    if value is not None and (
        not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value)
    ):
        raise ValueError(f"{value!r} is no number; what never came is {NEVER!r}")
    return value


def _written(value: float | None) -> float | str | None:
    return NEVER if value == math.inf else value


Value = Annotated[float | None, BeforeValidator(_read), PlainSerializer(_written)]
#: A moment in seconds from the end of the steady phase, and what all queues held; None marks a gap in the samples.
Depth = tuple[float, int | None]


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One run. ``labels``: {axis: label}.

    ``values``: {measure: number}, infinity for what never came, None for what was not measured; empty unless the status
    is ``measured``. ``why``: in a sentence, if it is another status or a promise was broken. ``depth``: what queues
    held over time, from ``of_brokers.depth_over_time``."""

    round: int
    labels: Mapping[str, str]
    status: Status
    verdict: str
    why: str
    values: Mapping[str, Value]
    run: str
    seed: int
    took_s: float | None
    at: str
    broker_version: str = ""
    depth: tuple[Depth, ...] = ()

    @property
    def key(self) -> tuple[int, tuple[tuple[str, str], ...]]:
        return self.round, tuple(sorted(self.labels.items()))

    @property
    def is_played_again(self) -> bool:
        """Return whether the next session plays the run again, as it has no result for its cell."""
        return self.status in ("disturbed", "broken off")


#: Columns of runs.csv and runs.parquet in addition to axes and measures.
COLUMNS = ("round", "status", "verdict", "why", "broker_version", "seed", "took_s", "run")

_OF, _LINE = TypeAdapter(Of), TypeAdapter(ResultRow)
#: What may differ between sessions that go on with one sweep.
MAY_DIFFER = frozenset({"began", "title"})


@dataclass
class Results:
    """The results of a sweep in ``folder``. ``of``: what they have in common; None before the first run."""

    folder: Path
    of: Of | None
    lines: list[ResultRow]
    #: Whether the file's last line is complete, so that another one may be appended.
    _is_whole: bool = True

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a folder, which need not exist; skip an incomplete last line. Raise ResultsError if it is damaged."""
        file = folder / "runs.jsonl"
        if not file.exists():
            return cls(folder, None, [])
        try:
            first, *rest = file.read_bytes().split(b"\n")
            of = _OF.validate_json(first)
            lines = [_LINE.validate_json(line) for line in rest[:-1]]  # the last part is empty or an incomplete line
            _require_once(lines)
        except (OSError, ValueError, ValidationError) as error:
            what = str(error).splitlines()[0]
            raise ResultsError(f"{file}: is no result of a sweep: {what}; move {folder} away to begin again") from None
        return cls(folder, of, lines, _is_whole=not rest[-1:] or not rest[-1])

    @property
    def final(self) -> list[ResultRow]:
        """Return the lines that count. A run that was disturbed or broken off counts only until it is replaced."""
        ended = {line.key for line in self.lines if not line.is_played_again}
        latest = {line.key: line for line in self.lines}
        return [
            line
            for line in self.lines
            if not line.is_played_again or (line.key not in ended and line is latest[line.key])
        ]

    def begin(self, of: Of, text: str) -> None:
        """Prepare the folder for a run to be entered. Raise ResultsError if it holds results of something else."""
        if self.of is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / STATED, text)
            write_whole(self.folder / "runs.jsonl", _json(of))
            self.of = of
        elif not self._is_whole:
            write_whole(self.folder / "runs.jsonl", "".join([_json(self.of), *map(_json, self.lines)]))
            self._is_whole = True
        self.require(of)

    def require(self, of: Of) -> None:
        """Raise ResultsError if the folder holds results that do not belong to ``of``."""
        if self.of is None:
            return
        before, now = asdict(self.of), asdict(of)
        apart = [f.name for f in fields(Of) if f.name not in MAY_DIFFER and before[f.name] != now[f.name]]
        if apart:
            differing = "; ".join(f"{name.replace('_', ' ')}: {before[name]} then, {now[name]} now" for name in apart)
            raise ResultsError(
                f"{self.folder} holds results of something else, and results are never mixed ({differing}); move the "
                "folder away to begin again"
            )

    def enter(self, line: ResultRow) -> None:
        """Append a run to runs.jsonl and sync it to the disk, so that it survives a crash of this machine."""
        with (self.folder / "runs.jsonl").open("a", encoding="utf-8") as file:
            file.write(_json(line))
            file.flush()
            os.fsync(file.fileno())
        self.lines.append(line)

    def write_tables(self, axes: Sequence[str], measures: Sequence[str]) -> None:
        """Write runs.csv and runs.parquet."""
        table = self.table(axes, measures)
        pq.write_table(table, self.folder / "runs.parquet")
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
        write_whole(self.folder / "runs.csv", text.getvalue())

    def table(self, axes: Sequence[str], measures: Sequence[str]) -> pa.Table:
        """Return a table with a row for each run.

        Columns: each axis (text), each measure (numbers, ``inf`` for what never came), and COLUMNS."""
        columns: dict[str, pa.Array] = {
            axis: pa.array([line.labels.get(axis) for line in self.lines], pa.string()) for axis in axes
        }
        columns["round"] = pa.array([line.round for line in self.lines], pa.int32())
        for name in ("status", "verdict", "why"):
            columns[name] = pa.array([getattr(line, name) for line in self.lines], pa.string())
        for measure in measures:
            columns[measure] = pa.array([line.values.get(measure) for line in self.lines], pa.float64())
        columns["broker_version"] = pa.array([line.broker_version for line in self.lines], pa.string())
        columns["seed"] = pa.array([line.seed for line in self.lines], pa.uint64())
        columns["took_s"] = pa.array([line.took_s for line in self.lines], pa.float64())
        columns["run"] = pa.array([line.run for line in self.lines], pa.string())
        return pa.table(columns)


def _require_once(lines: Sequence[ResultRow]) -> None:
    """Raise ValueError if a run is entered twice: it would count as two."""
    ended = Counter(line.key for line in lines if not line.is_played_again)
    for (number, labels), count in ended.items():
        if count > 1:
            raise ValueError(f"{', '.join(label for _, label in labels)} of round {number} is entered {count} times")


def _json(record: Of | ResultRow) -> str:
    return (_OF.dump_json(record) if isinstance(record, Of) else _LINE.dump_json(record)).decode() + "\n"
