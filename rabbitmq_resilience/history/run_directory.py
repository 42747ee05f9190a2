"""Create, read and write the directory that one run leaves behind.

::

    reports/runs/20261121T103643Z-minority-cut/
        manifest.json   the version of the record, and checksums of all of it (``history.manifest``)
        fault.yaml      the whole scenario: naming it to pytest repeats it
        verdict.json    what was judged
        events.jsonl    what happened to the cluster (``history.events``)
        metrics.parquet the brokers' metrics (``history.metrics``), if the scenario is measured
        alerts.json     the active alerts (``history.recorded_alerts``), if the scenario has rules; rules/ has them
        history/        what happened to every message (``history.history``); workers' own event files too
        logs/           every broker's log
        report.html     all of it on one page
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from rabbitmq_resilience.history.commands import recheck_command
from rabbitmq_resilience.history.event_log import EVENTS_FILE, read_events
from rabbitmq_resilience.history.events import Event
from rabbitmq_resilience.history.history import (
    DELIVERIES,
    DELIVERIES_SUFFIX,
    PUBLISHES,
    PUBLISHES_SUFFIX,
    HistoryError,
    StreamReader,
    files_of,
)
from rabbitmq_resilience.history.manifest import FAULT_FILE, VERSION, Manifest
from rabbitmq_resilience.history.metrics import METRICS_FILE, read_metrics
from rabbitmq_resilience.history.recorded_alerts import ALERTS_FILE, RecordedAlerts, read_alerts
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.history.whole_files import write_whole

NAME_CHARACTERS_MAX = 80

#: The least size of a row. Sequences have no gap, so no sequence is higher than the number of rows. A damaged sequence
#: must not fill the memory.
ROW_BYTES_MIN = 16
#: How many sequences may lack rows: those of killed publishers whose rows are not added yet.
SEQUENCES_UNWRITTEN_MAX = 1 << 20


class RunDirectoryError(Exception):
    """A run directory lacks something that was asked for; the text says what, and what to do."""


@dataclass(frozen=True)
class RunDirectory:
    """The paths and contents of one run. Use ``create`` for a new run, ``open`` for an old one."""

    path: Path

    @classmethod
    def create(cls, root: Path, name: str) -> Self:
        """Make a new directory ``<UTC time>-<name>`` under ``root``. An existing directory is never touched."""
        time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        for path in _candidates(root / f"{time}-{_slug(name)}"):
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            run = cls(path)
            run.history.mkdir()
            run.logs.mkdir()
            Manifest(VERSION).save(path)
            return run
        raise AssertionError("the candidates never end")

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the run at ``path``. Raise ``RunDirectoryError``, which says what is missing, or of which version the
        record is, if the run cannot be judged again."""
        if not path.exists():
            raise RunDirectoryError(f"{path} does not exist; index.html next to the runs lists them")
        if not path.is_dir():
            raise RunDirectoryError(f"{path} is a file, not a run directory; did you mean {path.parent}?")
        run = cls(path)
        needed = {run.fault_file: "the scenario", run.events_file: "the events", run.history: "the messages"}
        missing = [f"{file.name} ({meaning})" for file, meaning in needed.items() if not file.exists()]
        if missing:
            raise RunDirectoryError(f"{path} is not a complete run directory: it has no {', no '.join(missing)}")
        try:
            Manifest.read(path)
        except HistoryError as error:
            raise RunDirectoryError(str(error)) from None
        return run

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def fault_file(self) -> Path:
        return self.path / FAULT_FILE

    @property
    def verdict_file(self) -> Path:
        return self.path / "verdict.json"

    @property
    def events_file(self) -> Path:
        return self.path / EVENTS_FILE

    @property
    def history(self) -> Path:
        return self.path / "history"

    @property
    def metrics_file(self) -> Path:
        return self.path / METRICS_FILE

    @property
    def alerts_file(self) -> Path:
        return self.path / ALERTS_FILE

    @property
    def scraped(self) -> Path:
        """Return the folder of the Prometheus server's own files. It is left behind only if its data could not be
        written."""
        return self.path / "prometheus"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def publishes(self) -> Iterator[pa.RecordBatch]:
        """Start a new pass over the rows of every publisher (schema ``PUBLISHES``), in batches of any size. Raise
        HistoryError."""
        sequences = self._bytes_of_streams() // ROW_BYTES_MIN + SEQUENCES_UNWRITTEN_MAX
        for batch in self._batches(PUBLISHES_SUFFIX, PUBLISHES):
            if batch.num_rows and (highest := int(batch.column("sequence").to_numpy().max())) >= sequences:
                raise HistoryError(f"{self.history} has a message of sequence {highest}, and no room for as many")
            yield batch

    def owed(self) -> Iterator[pa.RecordBatch]:
        """Start the same pass with a row for each queue of a message (schema ``history.routes.OWED``)."""
        return map(Routes.read(self.history).owed, self.publishes())

    def deliveries(self) -> Iterator[pa.RecordBatch]:
        """Start a new pass over the rows of every consumer (schema ``DELIVERIES``), in batches of any size. Raise
        HistoryError."""
        return self._batches(DELIVERIES_SUFFIX, DELIVERIES)

    def log_texts(self) -> Iterator[str]:
        """Yield the log of each broker."""
        for log in sorted(self.logs.glob("*.log")):
            yield log.read_text(encoding="utf-8", errors="replace")

    def metrics(self, *names: str) -> pa.Table:
        """Return the brokers' own metrics (schema ``SERIES``), the named ones or all. There are no rows if they were
        not measured."""
        return read_metrics(self.metrics_file, *names)

    def alerts(self) -> RecordedAlerts | None:
        """Return the alerts of the run; None if there were no rules. Raise HistoryError."""
        return read_alerts(self.alerts_file)

    def events(self) -> list[Event]:
        """Return the events of the run and of its workers, in the order of time."""
        files = [self.events_file, *files_of(self.history, ".jsonl")]
        return list(read_events(*(file for file in files if file.exists())))

    def write_verdict(self, verdict: Mapping[str, Any]) -> None:
        """Write ``verdict.json`` whole or not at all."""
        write_whole(self.verdict_file, json.dumps(verdict, indent=2, ensure_ascii=False) + "\n")

    def read_verdict(self) -> dict[str, Any]:
        """Return ``verdict.json`` as plain data. Raise ``RunDirectoryError`` if that is not possible."""
        try:
            verdict = json.loads(self.verdict_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunDirectoryError(
                f"{self.path} has no verdict.json; {recheck_command(self.path)} writes it"
            ) from None
        except ValueError as error:
            raise RunDirectoryError(f"{self.verdict_file} is not JSON ({error}); --recheck writes it again") from None
        if not isinstance(verdict, dict):
            raise RunDirectoryError(f"{self.verdict_file} holds no verdict; --recheck writes it again")
        return verdict

    def _batches(self, suffix: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for file in sorted(files_of(self.history, suffix), key=_worker_and_life):
            yield from StreamReader(file, schema).together()

    def _bytes_of_streams(self) -> int:
        return sum(file.stat().st_size for file in files_of(self.history, PUBLISHES_SUFFIX))


def _worker_and_life(file: Path) -> tuple[str, int, str]:
    """Return the order of a stream: ``consumer-0.10...`` comes after ``consumer-0.2...``, as later lives saw later
    messages."""
    worker, _, rest = file.name.partition(".")
    life = rest.partition(".")[0]
    return worker, int(life) if life.isdigit() else 0, file.name


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", name.lower())[:NAME_CHARACTERS_MAX].strip("-") or "run"


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    for n in itertools.count(2):
        yield path.with_name(f"{path.name}-{n}")
