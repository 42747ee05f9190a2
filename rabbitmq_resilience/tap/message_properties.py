"""Read the properties of a message, with all values that brokers carry.

pika rounds numbers with fractions, and refuses texts that are no UTF-8 and times after the year 9999. Brokers take
them, so a connection with one of these must stay readable.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

_PERSISTENT = 2
#: In the order of their flags, from the highest on: the name of a property, and how it is read.
_PROPERTIES = [
    *(("content_type", "S"), ("content_encoding", "S"), ("headers", "F"), ("delivery_mode", "B"), ("priority", "B")),
    *(("correlation_id", "S"), ("reply_to", "S"), ("expiration", "S"), ("message_id", "S"), ("timestamp", "T")),
    *(("type", "S"), ("user_id", "S"), ("app_id", "S"), ("cluster_id", "S")),
]
_FLAGS = struct.Struct(">H")
#: By letter, what has a fixed length. Numbers with fractions stay bytes.
_FIXED = {letter: struct.Struct(f">{kind}") for letter, kind in zip("tbBsUuIiLlT", "?bBhhHiIqqQ", strict=True)}
_FIXED |= {letter: struct.Struct(f">{size}s") for letter, size in {"f": 4, "d": 8, "D": 5}.items()}


def is_persistent(properties: Mapping[str, Any]) -> bool:
    return properties.get("delivery_mode") == _PERSISTENT


def read_properties(payload: bytes) -> dict[str, Any]:
    """Return the properties that a message's header has. Raise ValueError or struct.error for damaged bytes."""
    (flags,), at, found = _FLAGS.unpack_from(payload, 12), 14, {}
    for bit, (name, letter) in enumerate(_PROPERTIES):
        if flags >> (15 - bit) & 1:
            if letter == "S":
                found[name], at = _short(payload, at)
            else:
                found[name], at = _value(letter, payload, at)
    return found


def _short(data: bytes, at: int) -> tuple[str, int]:
    return _text(data, at + 1, data[at])


def _text(data: bytes, at: int, size: int) -> tuple[str, int]:
    piece, end = _piece(data, at, size)
    return piece.decode("utf-8", "surrogateescape"), end


def _piece(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(data):
        raise ValueError("a value is longer than its frame")
    return data[at : at + size], at + size


def _long(data: bytes, at: int) -> tuple[bytes, int]:
    return _piece(data, at + 4, int.from_bytes(data[at : at + 4]))


def _value(letter: str, data: bytes, at: int) -> tuple[Any, int]:
    """Return a value of a table, and where the next begins."""
    if (fixed := _FIXED.get(letter)) is not None:
        (value,) = fixed.unpack_from(data, at)
        return (value.hex() if isinstance(value, bytes) else value), at + fixed.size
    if letter == "V":
        return None, at
    if (read := _LONG.get(letter)) is None:
        raise ValueError("a table has a value of a type that AMQP does not have")
    inside, end = _long(data, at)
    return read(inside), end


def _table(data: bytes) -> dict[str, Any]:
    at, found = 0, {}
    while at < len(data):
        key, at = _short(data, at)
        found[key], at = _value(chr(data[at]), data, at + 1)
    return found


def _list(data: bytes) -> list[Any]:
    at, found = 0, []
    while at < len(data):
        value, at = _value(chr(data[at]), data, at + 1)
        found.append(value)
    return found


_LONG: Mapping[str, Callable[[bytes], Any]] = {
    "S": lambda data: data.decode("utf-8", "surrogateescape"),
    "x": lambda data: data.decode("utf-8", "surrogateescape"),
    "F": _table,
    "A": _list,
}
