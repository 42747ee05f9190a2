"""The directory that one run leaves behind.

::

    reports/runs/20261121T103643Z-minority-cut/
        fault.yaml      the whole scenario: ``pytest --fault-file`` repeats it
        verdict.json    what was judged
        events.jsonl    what happened to the cluster (``reports.events``)
        metrics.parquet what the brokers said of themselves (``reports.metrics``), where the scenario is measured
        history/        what happened to every message (``reports.history``); workers' own event files too
        logs/           every broker's log
        report.html     all of it on one page
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from reports.commands import recheck_command
from reports.events import EVENTS_FILE, Event, read_events
from reports.history import DELIVERIES, DELIVERIES_SUFFIX, PUBLISHES, PUBLISHES_SUFFIX, StreamReader
from reports.metrics import METRICS_FILE, read_metrics

NAME_CHARACTERS_MAX = 80


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
    def fault_file(self) -> Path:
        return self.path / "fault.yaml"

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
    def scraped(self) -> Path:
        """The Prometheus server's own files; left behind only where ``metrics_file`` could not be written."""
        return self.path / "prometheus"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def publishes(self) -> Iterator[pa.RecordBatch]:
        """A fresh pass over the rows of every publisher (schema ``PUBLISHES``), in batches of any size."""
        return self._batches(PUBLISHES_SUFFIX, PUBLISHES)

    def deliveries(self) -> Iterator[pa.RecordBatch]:
        """A fresh pass over the rows of every consumer (schema ``DELIVERIES``), in batches of any size."""
        return self._batches(DELIVERIES_SUFFIX, DELIVERIES)

    def log_texts(self) -> Iterator[str]:
        """What each broker logged meanwhile."""
        for log in sorted(self.logs.glob("*.log")):
            yield log.read_text(encoding="utf-8", errors="replace")

    def metrics(self, *names: str) -> pa.Table:
        """What the brokers said of themselves (schema ``SERIES``), of the named metrics or of all; no rows where that
        was not measured."""
        return read_metrics(self.metrics_file, *names)

    def events(self) -> list[Event]:
        """The run's events and those of its workers, in the order of time."""
        files = [self.events_file, *sorted(self.history.glob("*.jsonl"))]
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
        for file in sorted(self.history.glob(f"*{suffix}"), key=_worker_and_life):
            yield from StreamReader(file, schema).together()


def _worker_and_life(file: Path) -> tuple[str, int, str]:
    """``consumer-0.10.deliveries.arrows`` comes after ``consumer-0.2...``: a later life saw later messages."""
    worker, _, rest = file.name.partition(".")
    life = rest.partition(".")[0]
    return worker, int(life) if life.isdigit() else 0, file.name


def write_whole(path: Path, text: str) -> None:
    """Replace ``path`` in one step: a reader sees the old text or the new one, also after a crash."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", name.lower())[:NAME_CHARACTERS_MAX].strip("-") or "run"


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    for n in itertools.count(2):
        yield path.with_name(f"{path.name}-{n}")
