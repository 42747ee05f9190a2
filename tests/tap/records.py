"""Read what a tap recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rabbitmq_resilience.history.event_log import read_events
from rabbitmq_resilience.history.events import WireEvent
from rabbitmq_resilience.history.history import StreamReader
from rabbitmq_resilience.tap.wire_history import EVENTS_FILE, WIRE, WIRE_FILE, Kind


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
