"""Write the outcomes of the messages that the publishers of a process sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rabbitmq_resilience.history.history import PUBLISHES, Outcome, StreamWriter, now_us
from rabbitmq_resilience.workload.under_way import UnderWay

FLUSH_S = 0.1
FLUSH_ROWS = 4096


def under_way_max(in_flight: int, *, publishers: int) -> int:
    """Return the most messages of a process that are sent and have no row yet; one write has no more rows."""
    return publishers * in_flight + FLUSH_ROWS


class Publishes:
    """A buffer of the rows of a process' history, which are written together from the table ``under_way``.

    After a write, ``on_written(publisher, count)`` is called for each publisher with the number of its rows.
    """

    def __init__(self, path: Path, *, under_way: UnderWay, on_written: Callable[[int, int], None]) -> None:
        self._writer = StreamWriter(path, PUBLISHES)
        self.under_way = under_way
        self._on_written = on_written
        self._flushed_s = 0.0
        self._clear()

    def _clear(self) -> None:
        self._places: list[int] = []
        self._outcomes: list[int] = []
        self._outcomes_us: list[int] = []

    def add(self, places: list[int], outcome: Outcome) -> None:
        count = len(places)
        self._places += places
        self._outcomes += [outcome] * count
        self._outcomes_us += [now_us()] * count
        if len(self._places) >= FLUSH_ROWS:
            self.flush()

    def tick(self, now_s: float) -> None:
        """Write the added messages if the last such write is ``FLUSH_S`` or longer ago."""
        if now_s - self._flushed_s >= FLUSH_S:
            self._flushed_s = now_s
            self.flush()

    def flush(self) -> None:
        """Write the added messages, and free their places."""
        if self._places:
            rows = self.under_way.rows(self._places)
            columns = {
                "publisher": rows["publisher"],
                "route": rows["route"],
                "sequence": rows["number"] - 1,
                "due_us": rows["due_us"],
                "sent_us": rows["sent_us"],
                "outcome": np.array(self._outcomes, dtype=np.uint8),
                "outcome_us": np.array(self._outcomes_us, dtype=np.int64),
                "node": rows["node"],
            }
            self._writer.append(columns)
            self.under_way.free(self._places)
            publishers, counts = np.unique(rows["publisher"], return_counts=True)
            for publisher, count in zip(publishers.tolist(), counts.tolist(), strict=True):
                self._on_written(publisher, count)
            self._clear()

    def close(self) -> None:
        """Close the history after its last row. No message may be under way."""
        self.flush()
        self._writer.close()
        self.under_way.remove()
