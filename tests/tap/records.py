"""Read and write what a tap records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rabbitmq_resilience.history.event_log import EventLog, read_events
from rabbitmq_resilience.history.events import WireEvent
from rabbitmq_resilience.history.history import StreamReader
from rabbitmq_resilience.tap.wire_history import EVENTS_FILE, WIRE, WIRE_FILE, Kind, Row, WireWriter

#: A time, a connection, what happened there, and the fields of that.
Wire = tuple[int, int, str, Mapping[str, Any]]


def write(folder: Path, rows: Iterable[Row], wire: Iterable[Wire] = (), *, processes: Sequence[str]) -> None:
    """Write the record of a tap, with a connection to a1 and a channel of it for each of ``processes``: their numbers
    are their places."""
    with EventLog(folder / EVENTS_FILE) as log:
        for number, process in enumerate(processes):
            owner = {"process": process, "node": "a1"}
            log.record("wire", t_us=1, connection=number, what="opened", fields=owner)
            log.record("wire", t_us=1, connection=number, what="channel_opened", channel=1, fields={"session": 0})
        for t_us, number, what, fields in wire:
            log.record("wire", t_us=t_us, connection=number, what=what, fields=dict(fields))
    writer = WireWriter(folder)
    for row in sorted(rows, key=lambda row: row.t_us):
        writer.add(row)
    writer.close()


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return all rows that are written so far."""
    return [row for batch in StreamReader(folder / WIRE_FILE, WIRE).batches() for row in batch.to_pylist()]


def kinds(folder: Path) -> list[str]:
    return [Kind(row["kind"]).name for row in rows(folder)]


def events(folder: Path) -> Sequence[WireEvent]:
    path = folder / EVENTS_FILE
    return [event for event in read_events(path) if isinstance(event, WireEvent)] if path.exists() else []


def said(folder: Path) -> list[str]:
    return [event.what for event in events(folder)]


def only(folder: Path, what: str) -> WireEvent:
    """Return the only event of a kind."""
    (found,) = [event for event in events(folder) if event.what == what]
    return found
