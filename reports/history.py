"""The record of every message: one append-only Arrow stream a worker, on one monotonic clock.

All times are ``time.monotonic_ns() // 1000``, microseconds of the machine's monotonic clock, which all
processes share. A stream is readable up to the point where its writer died, and while it is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import pyarrow as pa

PUBLISHES_SUFFIX = ".publishes.arrows"
DELIVERIES_SUFFIX = ".deliveries.arrows"


class Outcome(IntEnum):
    """What became of one publish. Only CONFIRMED must arrive; RETURNED was confirmed as unroutable."""

    NEVER_SENT = 0
    UNKNOWN = 1
    NACKED = 2
    RETURNED = 3
    CONFIRMED = 4
    #: Handed to the client library, fate not yet known. A later row of the same message supersedes
    #: it; if none follows (the publisher was killed), the outcome is UNKNOWN.
    SENT = 5


#: A message is identified by (publisher, sequence); sequences of a publisher start at 0 and have no gap.
PUBLISHES = pa.schema(
    [
        ("publisher", pa.uint16()),
        ("queue", pa.uint16()),
        ("sequence", pa.uint32()),
        ("sent_us", pa.int64()),
        ("outcome", pa.uint8()),
        ("outcome_us", pa.int64()),
        ("node", pa.uint8()),  # index into the topology's node names
    ]
)

DELIVERIES = pa.schema(
    [
        ("consumer", pa.uint16()),
        ("publisher", pa.uint16()),
        ("queue", pa.uint16()),  # the queue it was consumed from
        ("sequence", pa.uint32()),
        ("received_us", pa.int64()),
        ("redelivered", pa.bool_()),
        ("intact", pa.bool_()),  # header parsed, this run's, checksum right; if not, publisher and sequence are 0
    ]
)


def now_us() -> int:
    return time.monotonic_ns() // 1000


class StreamWriter:
    """Appends batches of columns to one stream; each ``append`` is in the kernel when it returns."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._file = pa.OSFile(str(path), "wb")
        self._stream = pa.ipc.new_stream(self._file, schema)

    def append(self, columns: dict[str, Any]) -> None:
        """``columns``: one sequence or array per field of the schema, all of one length."""
        arrays = [pa.array(columns[field.name], type=field.type) for field in self._schema]
        self._stream.write_batch(pa.record_batch(arrays, schema=self._schema))

    def close(self) -> None:
        self._stream.close()
        self._file.close()


class StreamReader:
    """Reads the complete batches of a stream that may still grow, or end in the middle of one."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._offset = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches that are complete now and were not yielded before."""
        raise NotImplementedError
