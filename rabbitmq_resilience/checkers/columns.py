"""Read batches of a history as arrays: in large pieces, and split by key."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
Rows = slice | npt.NDArray[np.intp]

#: How many rows to read at once: workers write small batches, and numpy works best with large ones.
ROWS_TOGETHER = 1 << 18


def pieces(batches: Iterable[pa.RecordBatch], *names: str) -> Iterator[tuple[Array, ...]]:
    """Yield the named columns of the rows, in order, in pieces of about ``ROWS_TOGETHER`` rows and never empty."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_TOGETHER:
            yield _columns(waiting, names)
            waiting, rows = [], 0
    if rows:
        yield _columns(waiting, names)


def _columns(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> tuple[Array, ...]:
    table = pa.Table.from_batches(batches)
    return tuple(table.column(name).to_numpy() for name in names)


def grouped(*keys: Array) -> Iterator[tuple[tuple[int, ...], Rows]]:
    """Yield each combination of values of the key columns with its rows, which stay in order."""
    varying = [key for key in keys if (key != key[0]).any()]
    if not varying:
        yield tuple(int(key[0]) for key in keys), slice(None)
        return
    combined, size = varying[0].astype(np.int64), int(varying[0].max()) + 1
    for key in varying[1:]:
        width = int(key.max()) + 1
        if size * width > np.iinfo(np.int64).max:
            places = np.unique(combined, return_inverse=True)[1]
            combined, size = places.astype(np.int64), int(places.max()) + 1
        combined, size = combined * width + key, size * width
    if size <= np.iinfo(np.uint16).max:
        combined = combined.astype(np.uint16)  # sorted by radix, in linear time
    order = np.argsort(combined, kind="stable")
    ordered = combined[order]
    edges = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(order)]
    for start, end in itertools.pairwise(edges):
        rows = order[start:end]
        yield tuple(int(key[rows[0]]) for key in keys), rows


def messages(publisher: Array, sequence: Array) -> npt.NDArray[np.uint64]:
    """Return one number for each message."""
    return publisher.astype(np.uint64) << np.uint64(32) | sequence


def matching(
    batches: Iterable[pa.RecordBatch], wanted: npt.NDArray[np.uint64], *names: str
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of the ``wanted`` messages (see ``messages``), as plain values by column name."""
    for publisher, sequence, *columns in pieces(batches, "publisher", "sequence", *names):
        rows = np.flatnonzero(np.isin(messages(publisher, sequence), wanted))
        for row in rows.tolist():
            values = [column[row].item() for column in (publisher, sequence, *columns)]
            yield dict(zip(("publisher", "sequence", *names), values, strict=True))
