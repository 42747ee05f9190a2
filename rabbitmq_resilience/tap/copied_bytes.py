"""Hand copies of bytes from the process that forwards them to the process that reads them, over a pipe."""

from __future__ import annotations

import json
import os
import select
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.tap.amqp_methods import Side

#: Connection, what it is, moment, length.
_HEAD = struct.Struct("<IBqI")
_READ_BYTES = 1 << 20


class Copied(IntEnum):
    """What a copy is: bytes of one of the sides, or a remark in JSON."""

    OF_CLIENT = 0
    OF_BROKER = 1
    REMARK = 2


class Copy(NamedTuple):
    """Bytes of a connection, or a remark on it, and when they passed."""

    connection: int
    what: Copied
    t_us: int
    data: bytes

    @property
    def remark(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self.data)
        return fields


def bytes_copy(connection: int, sender: Side, data: bytes) -> bytes:
    """Return the copy of bytes that a side sent now."""
    return _HEAD.pack(connection, Copied(int(sender)), now_us(), len(data)) + data


def remark_copy(connection: int, what: str, **fields: Any) -> bytes:
    """Return a remark on a connection, made now."""
    text = json.dumps({"what": what, **fields}).encode()
    return _HEAD.pack(connection, Copied.REMARK, now_us(), len(text)) + text


def read_copies(source: int, *, idle_s: float) -> Iterator[Copy | None]:
    """Yield each copy from a file descriptor until it ends, and None whenever nothing has come for ``idle_s``. A last
    copy that is cut short is left out."""
    kept = bytearray()
    while True:
        if not select.select([source], [], [], idle_s)[0]:
            yield None
            continue
        piece = os.read(source, _READ_BYTES)
        if not piece:
            return
        kept += piece
        at = 0
        while len(kept) - at >= _HEAD.size:
            connection, what, t_us, length = _HEAD.unpack_from(kept, at)
            end = at + _HEAD.size + length
            if len(kept) < end:
                break
            yield Copy(connection, Copied(what), t_us, bytes(kept[at + _HEAD.size : end]))
            at = end
        del kept[:at]
