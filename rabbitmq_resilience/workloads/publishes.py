"""What a process writes of the messages that its publishers sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rabbitmq_resilience.record.history import PUBLISHES, Outcome, StreamWriter, now_us
from rabbitmq_resilience.workloads.under_way import UnderWay

FLUSH_S = 0.1
FLUSH_ROWS = 4096


def under_way_max(in_flight: int, *, publishers: int) -> int:
    """The most messages of a process that are sent and have no row yet; one write has no more rows."""
    return publishers * in_flight + FLUSH_ROWS


class Publishes:
    """Rows of a process' history, collected for one write, from what is ``under_way``. ``on_written`` is told how many
    of which publisher were written."""

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
        """Write what was added in the last ``FLUSH_S``."""
        if now_s - self._flushed_s >= FLUSH_S:
            self._flushed_s = now_s
            self.flush()

    def flush(self) -> None:
        """Write what was added, and free its places."""
        if self._places:
            told = self.under_way.told(self._places)
            columns = {
                "publisher": told["publisher"],
                "route": told["route"],
                "sequence": told["number"] - 1,
                "due_us": told["due_us"],
                "sent_us": told["sent_us"],
                "outcome": np.array(self._outcomes, dtype=np.uint8),
                "outcome_us": np.array(self._outcomes_us, dtype=np.int64),
                "node": told["node"],
            }
            self._writer.append(columns)
            self.under_way.free(self._places)
            publishers, counts = np.unique(told["publisher"], return_counts=True)
            for publisher, count in zip(publishers.tolist(), counts.tolist(), strict=True):
                self._on_written(publisher, count)
            self._clear()

    def close(self) -> None:
        """After the last row, and once nothing is under way."""
        self.flush()
        self._writer.close()
        self.under_way.remove()
