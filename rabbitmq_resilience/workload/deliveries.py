"""Write the deliveries that the consumers of a process received, and let them acknowledge after the write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from rabbitmq_resilience.history.history import DELIVERIES, StreamWriter

FLUSH_S = 0.1
FLUSH_ROWS = 4096

#: consumer, publisher, queue, sequence, received_us, redelivered, intact
Row = tuple[int, int, int, int, int, bool, bool]


class Deliveries:
    """A buffer of the rows of a process' history, which are written together.

    After a write, ``on_written(consumer, count)`` is called for each consumer with the number of its rows.
    """

    def __init__(self, path: Path, *, on_written: Callable[[int, int], None]) -> None:
        self._writer = StreamWriter(path, DELIVERIES)
        self._on_written = on_written
        self._flushed_s = 0.0
        self.rows: list[Row] = []

    def tick(self, now_s: float) -> None:
        """Write the rows if the last such write is ``FLUSH_S`` or longer ago, also those not yet to be acknowledged."""
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
    """A consumer that waits to acknowledge its deliveries."""

    def acknowledge(self) -> None: ...


class Settling:
    """Let consumers acknowledge their deliveries once these are recorded.

    There is one write for all consumers that ask while the I/O loop serves the data that has arrived. ``later`` calls
    a function when the loop has served this data.
    """

    def __init__(self, history: Deliveries, later: Callable[[Callable[[], None]], object]) -> None:
        self.history = history
        self._later = later
        self._asking: list[Acknowledging] = []

    def ask(self, consumer: Acknowledging) -> None:
        if not self._asking:
            self._later(self.settle)
        self._asking.append(consumer)

    def settle(self) -> None:
        """Record all rows, then let the consumers that asked acknowledge."""
        asking, self._asking = self._asking, []
        self.history.flush()
        for consumer in asking:
            consumer.acknowledge()
