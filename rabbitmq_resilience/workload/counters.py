"""Count what every worker has done so far, in shared memory: cheap to read, and kept after a worker is killed.

A publisher stores ``SENT`` *before* it writes to its socket, so each message that may have left is known. This costs
one store into memory, which the kernel keeps when the process dies.
"""

from __future__ import annotations

import mmap
from enum import IntEnum
from pathlib import Path

from rabbitmq_resilience.tools.closing import Closing

COUNTERS_FILE = "counters.bin"
_WORD_BYTES = 8


class Count(IntEnum):
    """The words of a worker's row.

    ``NODE`` is 0, or 1 + the index of the node that the worker is connected to. ``RECORDED`` counts rows of the
    history: messages that a consumer received, or messages whose outcome a publisher knows.
    """

    NODE = 0
    SENT = 1
    UNUSED = 2
    CONFIRMED = 3
    REFUSED = 4  # nacked or returned
    UNKNOWN = 5
    RECORDED = 6  # changes after each write
    BLOCKED = 7


class Counters(Closing):
    """A table of 64-bit words with one row for each worker: publishers first, then consumers."""

    def __init__(self, folder: Path, *, workers: int, create: bool = False) -> None:
        path = folder / COUNTERS_FILE
        size_bytes = max(1, workers) * len(Count) * _WORD_BYTES  # no file that is mapped is empty
        if create:
            path.write_bytes(bytes(size_bytes))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size_bytes)
        self._words = memoryview(self._map).cast("Q")

    def get(self, worker: int, count: Count) -> int:
        return self._words[worker * len(Count) + count]

    def set(self, worker: int, count: Count, value: int) -> None:
        self._words[worker * len(Count) + count] = value

    def add(self, worker: int, count: Count, value: int) -> None:
        self._words[worker * len(Count) + count] += value

    def close(self) -> None:
        self._words.release()
        self._map.close()
