"""Record every message: one append-only Arrow stream for each worker, on one monotonic clock.

All times are ``time.monotonic_ns() // 1000``, microseconds of the machine's monotonic clock, which all processes share.
A stream is readable up to the point where its writer died, and while it is written.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from enum import IntEnum
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from rabbitmq_resilience.history.frames import CONTINUATION, PREFIX, body_bytes, taken_together

#: How many bytes of a stream are read at once if its batches are taken together.
WINDOW_BYTES = 1 << 21

#: The last bytes of a stream that its writer has completed.
END_OF_STREAM = PREFIX.pack(CONTINUATION, 0)

PUBLISHES_SUFFIX = ".publishes.arrows"
DELIVERIES_SUFFIX = ".deliveries.arrows"


def files_of(folder: Path, suffix: str) -> list[Path]:
    """Return the files in ``folder`` whose names end in ``suffix``, by name, without drafts, which begin with a dot."""
    return sorted(path for path in folder.glob(f"*{suffix}") if not path.name.startswith("."))


class Outcome(IntEnum):
    """The outcome of one publish. Only CONFIRMED must arrive; RETURNED was confirmed as unroutable.

    UNKNOWN: the connection was lost, the confirm never came, or the publisher was killed before it knew. NEVER_SENT: no
    byte of it reached a socket. Our publishers leave no row for such a message; other recorders may.
    """

    NEVER_SENT = 0
    UNKNOWN = 1
    NACKED = 2
    RETURNED = 3
    CONFIRMED = 4


#: A message is identified by (publisher, sequence). The sequences of a publisher start at 0 and have no gap. Each
#: message has *exactly one* row, written when its outcome is known, so rows are not in the order of sequences. For a
#: publisher that was killed, ``workload.settlement`` adds the UNKNOWN rows of messages that it had sent and not
#: recorded.
PUBLISHES = pa.schema(
    [
        ("publisher", pa.uint32()),
        ("route", pa.uint32()),  # index into the table of routes, ``history.routes``
        ("sequence", pa.uint32()),
        ("due_us", pa.int64()),  # when the target rate had a place for it; sent_us if there is no rate
        ("sent_us", pa.int64()),
        ("outcome", pa.uint8()),
        ("outcome_us", pa.int64()),
        ("node", pa.uint16()),  # index into the topology's node names
    ]
)

DELIVERIES = pa.schema(
    [
        ("consumer", pa.uint32()),
        ("publisher", pa.uint32()),
        ("queue", pa.uint32()),  # the queue it was consumed from
        ("sequence", pa.uint32()),
        ("received_us", pa.int64()),
        ("redelivered", pa.bool_()),
        ("intact", pa.bool_()),  # header parsed, of this run, checksum right; if not, publisher and sequence are 0
    ]
)


def now_us() -> int:
    """Return the moment on the clock of every record, in us."""
    return time.monotonic_ns() // 1000


class HistoryError(Exception):
    """A record is damaged in a way that a writer's death does not explain, or has other columns. The text names the
    place."""


def write_all(file: FileIO, data: Any) -> None:
    """Write all of ``data`` to an unbuffered file, which may take less than that at a time. Raise OSError if it
    fails."""
    left = memoryview(data).cast("B")
    while left.nbytes:
        left = left[file.write(left) :]


class StreamWriter:
    """Append batches of columns to one stream; each ``append`` is in the kernel when it returns.

    A batch that cannot be written (the disk is full) raises OSError, and so does each later one: a stream has an end
    mark only if all of it is there.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._torn = False
        self._file = path.open("xb", buffering=0)
        self._write(schema.serialize())

    def append(self, columns: dict[str, Any]) -> None:
        """Append a batch. ``columns``: one sequence or array per field of the schema, all of one length."""
        arrays = [pa.array(columns[field.name], type=field.type) for field in self._schema]
        self._write(pa.record_batch(arrays, schema=self._schema).serialize())

    def close(self) -> None:
        with self._file:
            self._write(END_OF_STREAM)

    def _write(self, data: Any) -> None:
        if self._torn:
            raise OSError(f"{self._file.name} ends in the middle of a batch that could not be written")
        self._torn = True
        write_all(self._file, data)
        self._torn = False


class StreamReader:
    """Read the complete batches of a stream that may still grow, or end in the middle of a batch.

    ``batches`` holds one batch at a time, ``together`` a window of many. A file that does not exist yet, and an
    incomplete tail, have no batches so far. The next call of either continues from there.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._offset = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches that are complete now and were not yielded before."""
        return self._read(window_bytes=0)

    def together(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were not yielded before, many small batches as one. This takes a tenth of the time if
        there are many."""
        return self._read(window_bytes=WINDOW_BYTES)

    def _read(self, *, window_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the next batches. Raise HistoryError for damaged bytes, and OSError if the file cannot be opened."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            try:
                yield from self._frames(file, window_bytes=window_bytes)
            except (struct.error, pa.ArrowException, OSError, ValueError, IndexError, OverflowError) as error:
                raise HistoryError(f"{self._path} is damaged at byte {self._offset} or after it: {error}") from None

    def _frames(self, file: BinaryIO, *, window_bytes: int) -> Iterator[pa.RecordBatch]:
        file.seek(self._offset)
        while (message := self._next_message(file)) is not None:
            if message.type == "record batch":
                batch = pa.ipc.read_record_batch(message, self._schema)
                batch.validate()
                yield batch
            elif not pa.ipc.read_schema(message).equals(self._schema):
                raise HistoryError(f"{self._path} does not have the columns {', '.join(self._schema.names)}")
            while window_bytes and (taken := self._next_window(file, window_bytes)) is not None:
                yield taken

    def _next_window(self, file: BinaryIO, window_bytes: int) -> pa.RecordBatch | None:
        """Return the rows of all frames that can be taken together now; None if the next is to be read by itself."""
        taken, taken_bytes = taken_together(file.read(window_bytes), self._schema)
        self._offset += taken_bytes
        file.seek(self._offset)
        return taken

    def _next_message(self, file: BinaryIO) -> pa.ipc.Message | None:
        """Return the next message if its frame is complete; else None."""
        prefix = file.read(PREFIX.size)
        if prefix == END_OF_STREAM and file.read(1):
            raise HistoryError(f"{self._path} goes on after its end mark, at byte {self._offset + PREFIX.size}")
        if len(prefix) < PREFIX.size or prefix == END_OF_STREAM:
            return None
        mark, metadata_bytes = PREFIX.unpack(prefix)
        if mark != CONTINUATION or metadata_bytes < 0:
            raise HistoryError(f"{self._path} holds no Arrow message at byte {self._offset}")
        left = os.fstat(file.fileno()).st_size - self._offset - len(prefix)
        if left < metadata_bytes:
            return None
        metadata = file.read(metadata_bytes)
        length = body_bytes(metadata)
        if length < 0:
            raise HistoryError(f"{self._path} has a batch of {length} bytes at byte {self._offset}")
        if left - metadata_bytes < length:
            return None
        body = file.read(length)
        self._offset += len(prefix) + metadata_bytes + length
        return pa.ipc.read_message(pa.py_buffer(b"".join((prefix, metadata, body))))
