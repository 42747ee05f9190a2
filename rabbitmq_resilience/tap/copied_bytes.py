"""Hand copies of bytes from the process that forwards them to the process that reads them, over a pipe."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, BinaryIO, NamedTuple

from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.tap.amqp_methods import Side

#: Connection, what it is, moment, length.
_HEAD = struct.Struct("<IBqI")


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


def read_copies(stream: BinaryIO) -> Iterator[Copy]:
    """Yield each copy until the stream ends. A last one that is cut short is left out."""
    while len(head := stream.read(_HEAD.size)) == _HEAD.size:
        connection, what, t_us, length = _HEAD.unpack(head)
        data = stream.read(length)
        if len(data) < length:
            return
        yield Copy(connection, Copied(what), t_us, data)
