"""What a process writes of the messages that its consumers received, and when they may acknowledge them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from rabbitmq_resilience.record.history import DELIVERIES, StreamWriter

FLUSH_S = 0.1
FLUSH_ROWS = 4096

#: consumer, publisher, queue, sequence, received_us, redelivered, intact
Row = tuple[int, int, int, int, int, bool, bool]


class Deliveries:
    """Rows of a process' history, collected for one write. ``on_written`` is told how many of which consumer were
    written."""

    def __init__(self, path: Path, *, on_written: Callable[[int, int], None]) -> None:
        self._writer = StreamWriter(path, DELIVERIES)
        self._on_written = on_written
        self._flushed_s = 0.0
        self.rows: list[Row] = []

    def tick(self, now_s: float) -> None:
        """Write what arrived in the last ``FLUSH_S``, whoever may acknowledge it when."""
        if now_s - self._flushed_s >= FLUSH_S:
            self._flushed_s = now_s
            self.flush()

    def flush(self) -> None:
        if not self.rows:
            return
        consumer, publisher, queue, sequence, received_us, redelivered, intact = zip(*self.rows, strict=True)
        columns = {
            "consumer": np.array(consumer, dtype=np.uint32),
            "publisher": np.array(publisher, dtype=np.uint32),
            "queue": np.array(queue, dtype=np.uint32),
            "sequence": np.array(sequence, dtype=np.uint32),
            "received_us": np.array(received_us, dtype=np.int64),
            "redelivered": np.array(redelivered, dtype=np.bool_),
            "intact": np.array(intact, dtype=np.bool_),
        }
        self._writer.append(columns)
        self.rows.clear()
        for each, count in Counter(consumer).items():
            self._on_written(each, count)

    def close(self) -> None:
        self.flush()
        self._writer.close()


class Acknowledging(Protocol):
    """A consumer that waits to acknowledge what it has received."""

    def acknowledge(self) -> None: ...


class Settling:
    """Lets consumers acknowledge what they have received, once it is recorded: one write for all those that ask while
    the I/O loop serves what has arrived. ``later`` calls a function when the loop is through with that."""

    def __init__(self, history: Deliveries, later: Callable[[Callable[[], None]], object]) -> None:
        self.history = history
        self._later = later
        self._asking: list[Acknowledging] = []

    def ask(self, consumer: Acknowledging) -> None:
        if not self._asking:
            self._later(self.settle)
        self._asking.append(consumer)

    def settle(self) -> None:
        """Record everything, then let those acknowledge that asked."""
        asking, self._asking = self._asking, []
        self.history.flush()
        for consumer in asking:
            consumer.acknowledge()
