"""Write frames of AMQP 0-9-1 from its grammar alone, for what tests send through a tap."""

from __future__ import annotations

import struct
from itertools import pairwise

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
PROTOCOL = b"AMQP\x00\x00\x09\x01"
ALIVE = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, ids: tuple[int, int], arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", *ids) + arguments)


def short(text: str) -> bytes:
    """Return a short string: one byte with the length, and UTF-8."""
    data = text.encode()
    return bytes([len(data)]) + data


def content(channel: int, body: bytes, *, pieces: int = 1, properties: bytes = b"\x00\x00") -> list[bytes]:
    """Return the header of a message, and its body in about as many frames."""
    size = max(1, -(-len(body) // pieces))
    header = frame(HEADER, channel, struct.pack(">HHQ", 60, 0, len(body)) + properties)
    return [header, *(frame(BODY, channel, body[at : at + size]) for at in range(0, len(body), size))]


def refusal(channel: int, code: int, text: str, ids: tuple[int, int]) -> bytes:
    """Return the method that closes a channel, or, of channel 0, the connection."""
    arguments = struct.pack(">H", code) + short(text) + struct.pack(">HH", *ids)
    return method(channel, (20, 40) if channel else (10, 50), arguments)


def cut(data: bytes, borders: list[int]) -> list[bytes]:
    """Return the pieces of ``data`` between these places."""
    places = sorted({0, len(data), *(border % (len(data) + 1) for border in borders)})
    return [data[begin:end] for begin, end in pairwise(places)]
