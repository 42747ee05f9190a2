"""The record of every message: one append-only Arrow stream a worker, on one monotonic clock.

All times are ``time.monotonic_ns() // 1000``, microseconds of the machine's monotonic clock, which all
processes share. A stream is readable up to the point where its writer died, and while it is written.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

PUBLISHES_SUFFIX = ".publishes.arrows"
DELIVERIES_SUFFIX = ".deliveries.arrows"


class Outcome(IntEnum):
    """What became of one publish. Only CONFIRMED must arrive; RETURNED was confirmed as unroutable.

    UNKNOWN: the connection was lost, the confirm never came, or the publisher was killed before it knew.
    NEVER_SENT: no byte of it reached a socket. Our publishers leave no row for such a message; other recorders may.
    """

    NEVER_SENT = 0
    UNKNOWN = 1
    NACKED = 2
    RETURNED = 3
    CONFIRMED = 4


#: A message is identified by (publisher, sequence); sequences of a publisher start at 0 and have no gap. Each
#: message has *exactly one* row, written when its outcome is known, so rows are not in the order of sequences. For
#: a publisher that was killed, ``workloads.settlement`` adds the UNKNOWN rows of what it had sent and not recorded.
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


class HistoryError(Exception):
    """A stream is damaged in a way that a writer's death does not explain; the text names file and offset."""


class StreamWriter:
    """Appends batches of columns to one stream; each ``append`` is in the kernel when it returns."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._file = path.open("xb", buffering=0)
        self._file.write(schema.serialize())

    def append(self, columns: dict[str, Any]) -> None:
        """``columns``: one sequence or array per field of the schema, all of one length."""
        arrays = [pa.array(columns[field.name], type=field.type) for field in self._schema]
        self._file.write(pa.record_batch(arrays, schema=self._schema).serialize())

    def close(self) -> None:
        self._file.write(_END_OF_STREAM)
        self._file.close()


class StreamReader:
    """Reads the complete batches of a stream that may still grow, or end in the middle of one.

    Holds one batch at a time. A file that does not exist yet, like a tail that is not complete, has no batches
    so far; the next call of ``batches`` goes on from there.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._offset = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches that are complete now and were not yielded before."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._offset)
            while (message := self._next_message(file)) is not None:
                if message.type == "record batch":
                    yield pa.ipc.read_record_batch(message, self._schema)
                elif not pa.ipc.read_schema(message).equals(self._schema):
                    raise HistoryError(f"{self._path} does not have the columns {', '.join(self._schema.names)}")

    def _next_message(self, file: BinaryIO) -> pa.ipc.Message | None:
        """The next message if it is complete. Its frame: a mark, the length of the metadata, the metadata, which
        tell the length of the body, and the body (Arrow, "Encapsulated message format")."""
        prefix = file.read(_PREFIX.size)
        if len(prefix) < _PREFIX.size or prefix == _END_OF_STREAM:
            return None
        mark, metadata_bytes = _PREFIX.unpack(prefix)
        if mark != _CONTINUATION:
            raise HistoryError(f"{self._path} holds no Arrow message at byte {self._offset}")
        metadata = file.read(metadata_bytes)
        if len(metadata) < metadata_bytes:
            return None
        body_bytes = _body_bytes(metadata)
        body = file.read(body_bytes)
        if len(body) < body_bytes:
            return None
        self._offset += len(prefix) + metadata_bytes + body_bytes
        return pa.ipc.read_message(pa.py_buffer(b"".join((prefix, metadata, body))))


_CONTINUATION = 0xFFFFFFFF
_PREFIX = struct.Struct("<Ii")
_END_OF_STREAM = _PREFIX.pack(_CONTINUATION, 0)
_BODY_LENGTH_SLOT = 4 + 2 * 3  # bodyLength is the fourth field of the flatbuffer table ``Message``


def _body_bytes(metadata: bytes) -> int:
    """The field ``bodyLength``, by the layout of flatbuffers: a root offset, a table, its vtable of field offsets."""
    (table,) = struct.unpack_from("<I", metadata, 0)
    (to_vtable,) = struct.unpack_from("<i", metadata, table)
    vtable = table - to_vtable
    (vtable_bytes,) = struct.unpack_from("<H", metadata, vtable)
    if vtable_bytes <= _BODY_LENGTH_SLOT:
        return 0
    (field,) = struct.unpack_from("<H", metadata, vtable + _BODY_LENGTH_SLOT)
    return int(struct.unpack_from("<q", metadata, table + field)[0]) if field else 0
