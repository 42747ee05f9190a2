"""The directory that one run leaves behind.

::

    reports/runs/20261121T103643Z-minority-cut/
        manifest.json   the version of the record, and checksums of all of it (``record.manifest``)
        fault.yaml      the whole scenario: naming it to pytest repeats it
        verdict.json    what was judged
        events.jsonl    what happened to the cluster (``record.events``)
        metrics.parquet what the brokers said of themselves (``record.metrics``), where the scenario is measured
        alerts.json     which alerts were active (``record.alerts``), where the scenario has rules; rules/ has them
        history/        what happened to every message (``record.history``); workers' own event files too
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

from rabbitmq_resilience.record.alerts import ALERTS_FILE, Alerts, read_alerts
from rabbitmq_resilience.record.commands import recheck_command
from rabbitmq_resilience.record.event_log import EVENTS_FILE, read_events
from rabbitmq_resilience.record.events import Event
from rabbitmq_resilience.record.history import (
    DELIVERIES,
    DELIVERIES_SUFFIX,
    PUBLISHES,
    PUBLISHES_SUFFIX,
    HistoryError,
    StreamReader,
    files_of,
)
from rabbitmq_resilience.record.manifest import FAULT_FILE, VERSION, Manifest
from rabbitmq_resilience.record.metrics import METRICS_FILE, read_metrics
from rabbitmq_resilience.record.routes import Routes
from rabbitmq_resilience.record.version_1 import DELIVERIES_1, PUBLISHES_1, ROUTES_1, as_today
from rabbitmq_resilience.record.whole_files import write_whole

NAME_CHARACTERS_MAX = 80

#: Sequences have no gap, so that no sequence is higher than the number of rows: a damaged one must not fill the memory.
ROW_BYTES_MIN = 16
#: Of publishers that were killed, and whose rows are not added yet.
SEQUENCES_UNWRITTEN_MAX = 1 << 20


class RunDirectoryError(Exception):
    """A run directory lacks what is asked of it; the text says what, and what to do."""


@dataclass(frozen=True)
class RunDirectory:
    """Paths and contents of one run; made by ``create`` for a new run, by ``open`` for an old one."""

    path: Path

    @classmethod
    def create(cls, root: Path, name: str) -> Self:
        """Make a new directory ``<UTC time>-<name>`` under ``root``; an existing one is never touched."""
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
        """The run at ``path``, complete enough to be judged again; ``RunDirectoryError`` says what it lacks."""
        if not path.exists():
            raise RunDirectoryError(f"{path} does not exist; index.html beside the runs lists them")
        if not path.is_dir():
            raise RunDirectoryError(f"{path} is a file, not a run directory; did you mean {path.parent}?")
        run = cls(path)
        needed = {run.fault_file: "the scenario", run.events_file: "the events", run.history: "the messages"}
        missing = [f"{file.name} ({meaning})" for file, meaning in needed.items() if not file.exists()]
        if missing:
            raise RunDirectoryError(f"{path} is not a complete run directory: it has no {', no '.join(missing)}")
        return run

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def version(self) -> int:
        """Of the format of the record. Raises HistoryError where that cannot be told."""
        return Manifest.read(self.path).version

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
        """The Prometheus server's own files; left behind only where what it knew could not be written."""
        return self.path / "prometheus"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def publishes(self) -> Iterator[pa.RecordBatch]:
        """A fresh pass over the rows of every publisher (schema ``PUBLISHES``), in batches of any size. Raises
        HistoryError."""
        sequences = self._bytes_of_streams() // ROW_BYTES_MIN + SEQUENCES_UNWRITTEN_MAX
        for batch in self._batches(PUBLISHES_SUFFIX, PUBLISHES_1 if self.version == 1 else PUBLISHES):
            if batch.num_rows and (highest := int(batch.column("sequence").to_numpy().max())) >= sequences:
                raise HistoryError(f"{self.history} has a message of sequence {highest}, and no room for as many")
            yield batch

    def owed(self) -> Iterator[pa.RecordBatch]:
        """The same, with a row for each queue that a message goes to (schema ``record.routes.OWED``)."""
        routes = ROUTES_1 if self.version == 1 else Routes.read(self.history)
        return map(routes.owed, self.publishes())

    def deliveries(self) -> Iterator[pa.RecordBatch]:
        """A fresh pass over the rows of every consumer (schema ``DELIVERIES``), in batches of any size. Raises
        HistoryError."""
        return self._batches(DELIVERIES_SUFFIX, DELIVERIES_1 if self.version == 1 else DELIVERIES)

    def log_texts(self) -> Iterator[str]:
        """What each broker logged meanwhile."""
        for log in sorted(self.logs.glob("*.log")):
            yield log.read_text(encoding="utf-8", errors="replace")

    def metrics(self, *names: str) -> pa.Table:
        """What the brokers said of themselves (schema ``SERIES``), of the named metrics or of all; no rows where that
        was not measured."""
        return read_metrics(self.metrics_file, *names)

    def alerts(self) -> Alerts | None:
        """Which alerts were active; None where there were no rules. Raises HistoryError."""
        return read_alerts(self.alerts_file)

    def events(self) -> list[Event]:
        """The run's events and those of its workers, in the order of time."""
        files = [self.events_file, *files_of(self.history, ".jsonl")]
        return list(read_events(*(file for file in files if file.exists())))

    def write_verdict(self, verdict: Mapping[str, Any]) -> None:
        """Write ``verdict.json`` whole or not at all."""
        write_whole(self.verdict_file, json.dumps(verdict, indent=2, ensure_ascii=False) + "\n")

    def read_verdict(self) -> dict[str, Any]:
        """``verdict.json`` as plain data, or ``RunDirectoryError``."""
        try:
            verdict = json.loads(self.verdict_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunDirectoryError(
                f"{self.path} has no verdict.json; {recheck_command(self.path)} writes it"
            ) from None
        except ValueError as error:
            raise RunDirectoryError(f"{self.verdict_file} is not JSON ({error}); --recheck writes it anew") from None
        if not isinstance(verdict, dict):
            raise RunDirectoryError(f"{self.verdict_file} holds no verdict; --recheck writes it anew")
        return verdict

    def _batches(self, suffix: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        of_today = schema in (PUBLISHES, DELIVERIES)
        for file in sorted(files_of(self.history, suffix), key=_worker_and_life):
            batches = StreamReader(file, schema).together()
            yield from batches if of_today else map(as_today, batches)

    def _bytes_of_streams(self) -> int:
        return sum(file.stat().st_size for file in files_of(self.history, PUBLISHES_SUFFIX))


def _worker_and_life(file: Path) -> tuple[str, int, str]:
    """``consumer-0.10.deliveries.arrows`` comes after ``consumer-0.2...``: a later life saw later messages."""
    worker, _, rest = file.name.partition(".")
    life = rest.partition(".")[0]
    return worker, int(life) if life.isdigit() else 0, file.name


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", name.lower())[:NAME_CHARACTERS_MAX].strip("-") or "run"


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    for n in itertools.count(2):
        yield path.with_name(f"{path.name}-{n}")
