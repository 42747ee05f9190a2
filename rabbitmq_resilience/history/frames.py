"""Decode the frames of an Arrow IPC stream, many small frames at once.

A frame is a mark, the length of its metadata, the metadata, which state the length of the body, and the body (Arrow,
"Encapsulated message format"). Workers write frames of some ten rows, because they write what they know ten times a
second. So 25 million messages are millions of frames, and decoding each by itself takes minutes. Frames of one schema
with the same number of rows, and no nulls, differ in their values only. So one of them shows where the values of all
are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

CONTINUATION = 0xFFFFFFFF
PREFIX = struct.Struct("<Ii")
_BODY_LENGTH_SLOT = 4 + 2 * 3  # bodyLength is the fourth field of the flatbuffer table ``Message``
_WORD_BYTES = 8  # frames begin at multiples of this

Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.intp]


def body_bytes(metadata: bytes) -> int:
    """Return the field ``bodyLength``. By the layout of flatbuffers this is a root offset, a table, and its vtable of
    field offsets."""
    (table,) = struct.unpack_from("<I", metadata, 0)
    (to_vtable,) = struct.unpack_from("<i", metadata, table)
    vtable = table - to_vtable
    (vtable_bytes,) = struct.unpack_from("<H", metadata, vtable)
    if vtable_bytes <= _BODY_LENGTH_SLOT:
        return 0
    (field,) = struct.unpack_from("<H", metadata, vtable + _BODY_LENGTH_SLOT)
    return int(struct.unpack_from("<q", metadata, table + field)[0]) if field else 0


def taken_together(window: bytes, schema: pa.Schema) -> tuple[pa.RecordBatch | None, int]:
    """Return the rows of the first frames of ``window``, and the size of these frames in bytes.

    ``window`` must begin with a frame. Frames that are not taken are left for the caller to decode one by one: a frame
    that no other frame follows, and a frame that is not like the others as described above. The result is None and 0 if
    that is the first frame.
    """
    words = np.frombuffer(window, "<u8", len(window) // _WORD_BYTES)
    starts = np.flatnonzero(words == words[:1])  # a value may look like a mark: each frame's own length must agree
    sizes = np.diff(starts)
    kinds = {int(size): _kind(words, np.flatnonzero(sizes == size), starts, schema) for size in np.unique(sizes)}
    rows = np.zeros(len(sizes), np.intp)
    for kind in kinds.values():
        rows[kind.which] = np.where(kind.alike, kind.rows, 0)
    count = len(rows) if rows.all() else int(np.argmin(rows))
    if not count:
        return None, 0
    firsts = np.cumsum(rows[:count]) - rows[:count]
    columns = [np.empty(int(rows[:count].sum()), field.type.to_pandas_dtype()) for field in schema]
    for kind in kinds.values():
        into = firsts[kind.which[kind.which < count]][:, None] + np.arange(kind.rows)
        for column, values in zip(columns, kind.values(len(into)), strict=False):
            column[into] = values
    taken = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema)
    return taken, int(starts[count]) * _WORD_BYTES


@dataclass(frozen=True, eq=False)
class _Kind:
    """Frames of one size. ``which``: their places in the window. ``frames``: their bytes, one line for each frame.
    ``rows``: the number of rows in each (0: they cannot be taken together). ``alike``: which of them are like the
    first. ``columns``: for each column the number of bytes before its values, and their type."""

    which: Places
    frames: npt.NDArray[np.uint8]
    rows: int = 0
    alike: npt.NDArray[np.bool_] | bool = False
    columns: tuple[tuple[int, Any], ...] = ()

    def values(self, count: int) -> Iterator[npt.NDArray[Any]]:
        """Yield each column of the first ``count`` frames, one line for each frame."""
        for before, dtype in self.columns:
            if dtype == np.bool_:
                bits = self.frames[:count, before : before + -(-self.rows // 8)]
                yield np.unpackbits(bits, axis=1, count=self.rows, bitorder="little")
            else:
                column = self.frames[:count, before : before + self.rows * np.dtype(dtype).itemsize]
                yield np.ascontiguousarray(column).view(dtype)


def _kind(words: Words, which: Places, starts: Places, schema: pa.Schema) -> _Kind:
    """Return the layout of the frames of one size, by the first of them."""
    size = int(starts[which[0] + 1] - starts[which[0]])
    lines = sliding_window_view(words, size)[starts[which]]
    frames, buffer = lines.view(np.uint8), pa.py_buffer(lines[0].tobytes())
    header = PREFIX.size + PREFIX.unpack_from(buffer)[1]
    if header % _WORD_BYTES or not _is_whole(buffer.to_pybytes(), header):
        return _Kind(which, frames)
    message = pa.ipc.read_message(buffer)
    if message.type != "record batch":
        return _Kind(which, frames)
    batch = pa.ipc.read_record_batch(message, schema)
    buffers = [column.buffers() for column in batch.columns]
    if any(validity is not None for validity, _ in buffers):
        return _Kind(which, frames)
    dtypes = [field.type.to_pandas_dtype() for field in schema]
    places = [values.address - buffer.address for _, values in buffers]
    if not all(_fits(place, dtype, batch.num_rows, len(buffer)) for place, dtype in zip(places, dtypes, strict=True)):
        return _Kind(which, frames)
    headers = lines[:, : header // _WORD_BYTES]
    alike = (headers == headers[0]).all(axis=1)
    return _Kind(which, frames, batch.num_rows, alike, tuple(zip(places, dtypes, strict=True)))


def _fits(place: int, dtype: Any, rows: int, size: int) -> bool:
    """Return whether that number of values fits there; damaged metadata may state anything."""
    length = -(-rows // 8) if dtype == np.bool_ else rows * np.dtype(dtype).itemsize
    return place > 0 and place + length <= size


def _is_whole(frame: bytes, header: int) -> bool:
    """Return whether the frame is as long as it states. Values that only look like a frame may state anything."""
    try:
        return header + body_bytes(frame[PREFIX.size : header]) == len(frame)
    except struct.error:
        return False
