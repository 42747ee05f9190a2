"""Keep the messages that the publishers of a process have sent and not recorded yet, in memory that outlives it.

A process writes each message to this table *before* it sends the bytes, and a row of the history only when it knows the
outcome. If it is killed between the two, ``workload.settlement`` finds the contents of the row here.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.tools.closing import Closing

UNDER_WAY_SUFFIX = ".underway.bin"

#: One place of the table. ``number`` is the sequence plus 1, or 0 if the place was never used.
PLACE = np.dtype(
    [
        ("due_us", "<i8"),
        ("sent_us", "<i8"),
        ("number", "<u4"),
        ("route", "<u4"),
        ("node", "<u2"),
        ("", "V2"),
        ("publisher", "<u4"),
    ]
)
_PACKED = struct.Struct("<qqIIH2xI")

Places = npt.NDArray[Any]


class UnderWay(Closing):
    """A table with ``size`` places for messages. A place is taken until the row of its message is written."""

    def __init__(self, path: Path, *, size: int) -> None:
        self._path = path
        with path.open("xb+") as file:
            file.truncate(size * PLACE.itemsize)
            self._map = mmap.mmap(file.fileno(), size * PLACE.itemsize)
        self._table = np.frombuffer(self._map, PLACE)
        self._free = list(range(size - 1, -1, -1))

    def take(  # noqa: PLR0917 - the columns of a row
        self, publisher: int, first: int, routes: Sequence[int], due_us: Sequence[int], sent_us: int, node: int
    ) -> list[int]:
        """Write messages with consecutive sequences, from ``first`` on, to free places, and return these places."""
        count = len(routes)
        places = self._free[-count:]
        if len(places) < count:
            raise RuntimeError(f"{count} messages more than {self._path} has room for")
        del self._free[-count:]
        pack, table, size = _PACKED.pack_into, self._map, _PACKED.size
        for number, place, route, due in zip(range(first + 1, first + 1 + count), places, routes, due_us, strict=True):
            pack(table, place * size, due, sent_us, number, route, node, publisher)
        return places

    def rows(self, places: Sequence[int]) -> Places:
        """Return a copy of the table's rows at these places."""
        copied: Places = self._table[np.array(places, dtype=np.intp)]
        return copied

    def sequence(self, place: int) -> int:
        return int(self._table["number"][place]) - 1

    def sent_us(self, place: int) -> int:
        return int(self._table["sent_us"][place])

    def free(self, places: Sequence[int]) -> None:
        """Free these places: the rows of their messages are written."""
        self._free += places

    def close(self) -> None:
        del self._table
        self._map.close()

    def remove(self) -> None:
        """Remove the table's file: all rows are written."""
        self.close()
        self._path.unlink()


def left_under_way(path: Path) -> Places:
    """Return the messages that a killed process left in its table, recorded or not. A torn last place is skipped."""
    data = path.read_bytes()
    table = np.frombuffer(data, PLACE, len(data) // PLACE.itemsize)
    return table[table["number"] > 0]
