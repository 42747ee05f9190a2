"""Read and write the methods of AMQP 0-9-1 by a table of their arguments, as the specification has them.

The types: o octet, s short, l long, q long long, S short string, L long string, T table, and b for a run of bits.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

#: {name: (class, method, arguments)}; an argument is its type and name.
METHODS: Mapping[str, tuple[int, int, str]] = {
    "connection.start": (10, 10, "o:major o:minor T:properties L:mechanisms L:locales"),
    "connection.start-ok": (10, 11, "T:properties S:mechanism L:response S:locale"),
    "connection.secure": (10, 20, "L:challenge"),
    "connection.secure-ok": (10, 21, "L:response"),
    "connection.tune": (10, 30, "s:channel_max l:frame_max s:heartbeat"),
    "connection.tune-ok": (10, 31, "s:channel_max l:frame_max s:heartbeat"),
    "connection.open": (10, 40, "S:vhost S:- b:-"),
    "connection.open-ok": (10, 41, "S:-"),
    "connection.close": (10, 50, "s:code S:text s:class s:method"),
    "connection.close-ok": (10, 51, ""),
    "connection.blocked": (10, 60, "S:reason"),
    "connection.unblocked": (10, 61, ""),
    "connection.update-secret": (10, 70, "L:secret S:reason"),
    "connection.update-secret-ok": (10, 71, ""),
    "channel.open": (20, 10, "S:-"),
    "channel.open-ok": (20, 11, "L:-"),
    "channel.flow": (20, 20, "b:active"),
    "channel.flow-ok": (20, 21, "b:active"),
    "channel.close": (20, 40, "s:code S:text s:class s:method"),
    "channel.close-ok": (20, 41, ""),
    "exchange.declare": (40, 10, "s:- S:exchange S:type b:passive,durable,auto_delete,internal,nowait T:arguments"),
    "exchange.declare-ok": (40, 11, ""),
    "queue.declare": (50, 10, "s:- S:queue b:passive,durable,exclusive,auto_delete,nowait T:arguments"),
    "queue.declare-ok": (50, 11, "S:queue l:messages l:consumers"),
    "queue.bind": (50, 20, "s:- S:queue S:exchange S:key b:nowait T:arguments"),
    "queue.bind-ok": (50, 21, ""),
    "queue.purge": (50, 30, "s:- S:queue b:nowait"),
    "queue.purge-ok": (50, 31, "l:messages"),
    "queue.delete": (50, 40, "s:- S:queue b:if_unused,if_empty,nowait"),
    "queue.delete-ok": (50, 41, "l:messages"),
    "queue.unbind": (50, 50, "s:- S:queue S:exchange S:key T:arguments"),
    "queue.unbind-ok": (50, 51, ""),
    "basic.qos": (60, 10, "l:size s:count b:global"),
    "basic.qos-ok": (60, 11, ""),
    "basic.consume": (60, 20, "s:- S:queue S:tag b:no_local,no_ack,exclusive,nowait T:arguments"),
    "basic.consume-ok": (60, 21, "S:tag"),
    "basic.cancel": (60, 30, "S:tag b:nowait"),
    "basic.cancel-ok": (60, 31, "S:tag"),
    "basic.publish": (60, 40, "s:- S:exchange S:key b:mandatory,immediate"),
    "basic.return": (60, 50, "s:code S:text S:exchange S:key"),
    "basic.deliver": (60, 60, "S:tag q:delivery b:redelivered S:exchange S:key"),
    "basic.get": (60, 70, "s:- S:queue b:no_ack"),
    "basic.get-ok": (60, 71, "q:delivery b:redelivered S:exchange S:key l:messages"),
    "basic.get-empty": (60, 72, "S:-"),
    "basic.ack": (60, 80, "q:delivery b:multiple"),
    "basic.reject": (60, 90, "q:delivery b:requeue"),
    "basic.recover": (60, 110, "b:requeue"),
    "basic.recover-ok": (60, 111, ""),
    "basic.nack": (60, 120, "q:delivery b:multiple,requeue"),
    "confirm.select": (85, 10, "b:nowait"),
    "confirm.select-ok": (85, 11, ""),
    "tx.select": (90, 10, ""),
    "tx.select-ok": (90, 11, ""),
    "tx.commit": (90, 20, ""),
    "tx.commit-ok": (90, 21, ""),
    "tx.rollback": (90, 30, ""),
    "tx.rollback-ok": (90, 31, ""),
}
NAMES = {(group, method): name for name, (group, method, _) in METHODS.items()}
#: Properties in the order of their flags, from the highest on, and their types.
PROPERTIES = [
    *(("content_type", "S"), ("content_encoding", "S"), ("headers", "T"), ("delivery_mode", "o"), ("priority", "o")),
    *(("correlation_id", "S"), ("reply_to", "S"), ("expiration", "S"), ("message_id", "S"), ("timestamp", "q")),
    *(("type", "S"), ("user_id", "S"), ("app_id", "S"), ("cluster_id", "S")),
]
_NUMBERS = {"o": ">B", "s": ">H", "l": ">I", "q": ">Q"}


def written(kind: str, value: Any) -> bytes:
    """Return one value as bytes."""
    if kind in _NUMBERS:
        return struct.pack(_NUMBERS[kind], value)
    if kind == "T":
        inside = b"".join(written("S", key) + _field(each) for key, each in value.items())
        return len(inside).to_bytes(4) + inside
    data = value if isinstance(value, bytes) else value.encode()
    return len(data).to_bytes(1 if kind == "S" else 4) + data


def _field(value: Any) -> bytes:
    """Return a value of a table with the letter of its type."""
    if isinstance(value, bool):
        return b"t" + bytes([value])
    if isinstance(value, int):
        return b"l" + value.to_bytes(8, signed=True)
    if isinstance(value, dict):
        return b"F" + written("T", value)
    if isinstance(value, list):
        inside = b"".join(map(_field, value))
        return b"A" + len(inside).to_bytes(4) + inside
    return b"V" if value is None else b"S" + written("L", value)


def arguments(name: str, **values: Any) -> bytes:
    """Return the payload of a method. Arguments that are not given are 0, empty or false."""
    group, method, wanted = METHODS[name]
    data = struct.pack(">HH", group, method)
    for kind, names in (each.split(":") for each in wanted.split()):
        if kind == "b":
            bits = [bool(values.get(each, False)) for each in names.split(",")]
            data += bytes([sum(bit << at for at, bit in enumerate(bits))])
        else:
            data += written(kind, values.get(names, 0 if kind in _NUMBERS else {} if kind == "T" else ""))
    return data


def properties(**values: Any) -> bytes:
    """Return the flags and values of a message's properties."""
    flags = sum(1 << (15 - at) for at, (name, _) in enumerate(PROPERTIES) if name in values)
    return flags.to_bytes(2) + b"".join(written(kind, values[name]) for name, kind in PROPERTIES if name in values)


class Reader:
    """Take values from bytes, one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        assert len(taken) == size
        self._at += size
        return taken

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def value(self, kind: str) -> Any:
        if kind in _NUMBERS:
            size = struct.calcsize(_NUMBERS[kind])
            return int.from_bytes(self.take(size))
        data = self.take(int.from_bytes(self.take(1 if kind == "S" else 4)))
        return data if kind in {"T", "L"} else data.decode()


def read_method(payload: bytes) -> tuple[str, dict[str, Any]]:
    """Return the name of a method, and its arguments. Tables and long strings stay bytes."""
    reader = Reader(payload)
    name = NAMES[reader.value("s"), reader.value("s")]
    found: dict[str, Any] = {}
    for kind, names in (each.split(":") for each in METHODS[name][2].split()):
        if kind == "b":
            bits = reader.take(1)[0]
            found |= {each: bool(bits >> at & 1) for at, each in enumerate(names.split(","))}
        else:
            found[names] = reader.value(kind)
    return name, found


def read_header(payload: bytes) -> tuple[int, dict[str, Any]]:
    """Return the size of a body, and the message's properties."""
    reader = Reader(payload[12:])
    flags = reader.value("s")
    present: Sequence[tuple[str, str]] = [each for at, each in enumerate(PROPERTIES) if flags >> (15 - at) & 1]
    return int.from_bytes(payload[4:12]), {name: reader.value(kind) for name, kind in present}


def read_table(data: bytes) -> dict[str, Any]:
    """Return a table with the types of value that ``written`` writes."""
    reader, found = Reader(data), {}
    while not reader.at_end:
        key = reader.value("S")
        found[key] = _read_field(reader)
    return found


def _read_field(reader: Reader) -> Any:
    letter = reader.take(1)
    if letter == b"t":
        return reader.take(1) != b"\x00"
    if letter == b"l":
        return int.from_bytes(reader.take(8), signed=True)
    if letter == b"F":
        return read_table(reader.value("T"))
    if letter == b"A":
        inside, values = Reader(reader.value("T")), []
        while not inside.at_end:
            values.append(_read_field(inside))
        return values
    assert letter in {b"V", b"S"}
    return None if letter == b"V" else reader.value("L").decode()
