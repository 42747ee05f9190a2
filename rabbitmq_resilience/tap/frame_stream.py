"""Find the borders of AMQP frames in one direction of a connection, without decoding what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rabbitmq_resilience.tap.amqp_methods import (
    FRAME_END,
    FRAME_HEAD,
    METHOD,
    PROTOCOL_HEADER_BEGINS,
    PROTOCOL_HEADER_BYTES,
    Ids,
    ids_of,
)

_HEAD_BYTES = FRAME_HEAD.size
_IDS_BYTES = 4
_KINDS = frozenset({1, 2, 3, 8})


class Frame(NamedTuple):
    """One whole frame as it was sent. ``kind`` is its first byte; a protocol header counts as a frame of channel 0."""

    kind: int
    channel: int
    data: bytes

    @property
    def payload(self) -> bytes:
        return self.data[_HEAD_BYTES:-1]

    @property
    def method(self) -> Ids | None:
        """Return (class, method), or None for a frame that is no method."""
        if self.kind != METHOD or len(self.data) < _HEAD_BYTES + _IDS_BYTES + 1:
            return None
        return ids_of(self.data[_HEAD_BYTES : _HEAD_BYTES + _IDS_BYTES])


class NotAmqpError(ValueError):
    """The bytes are no frames; the text says why. No later border can be found."""


class FrameStream:
    """The frames of one direction.

    ``passed`` follows bytes that go on at once. ``frames`` keeps an incomplete frame until its last byte comes. The two
    may alternate: a frame that has begun to pass, passes to its end.
    """

    def __init__(self) -> None:
        self._passing = 0  # bytes of the present frame that pass without a look
        self._head = b""  # the part of a frame's head that has passed
        self._kept = bytearray()

    @property
    def kept_bytes(self) -> int:
        """Return how many bytes of an incomplete frame are kept back."""
        return len(self._kept)

    def passed(self, data: bytes) -> None:
        """Follow bytes that were passed on. Raise NotAmqpError if they cannot be a frame's head."""
        at, end = 0, len(data)
        while at < end:
            if self._passing:
                step = min(self._passing, end - at)
                self._passing -= step
                at += step
                continue
            if self._head or end - at < _HEAD_BYTES:
                step = min(_HEAD_BYTES - len(self._head), end - at)
                self._head += data[at : at + step]
                at += step
                if len(self._head) == _HEAD_BYTES:
                    self._passing = _frame_bytes(self._head, 0) - _HEAD_BYTES
                    self._head = b""
                continue
            self._passing = _frame_bytes(data, at)

    def frames(self, data: bytes) -> Iterator[bytes | Frame]:
        """Yield each frame that is complete now, and before them, as bytes, the rest of a frame that had begun to pass.
        Raise NotAmqpError where the bytes are no frame; ``taken`` has them then."""
        self._kept += data
        if self._passing or self._head:
            needed = self._needed(data)
            self.passed(data[:needed])
            del self._kept[:needed]
            yield data[:needed]
        at, end = 0, len(self._kept)
        try:
            while end - at >= _HEAD_BYTES:
                frame_bytes = _frame_bytes(self._kept, at)
                if end - at < frame_bytes:
                    break
                frame = bytes(self._kept[at : at + frame_bytes])
                kind, channel, _ = FRAME_HEAD.unpack_from(frame)
                if kind == PROTOCOL_HEADER_BEGINS:
                    channel = 0
                elif frame[-1] != FRAME_END:
                    raise NotAmqpError(f"a frame ends with the byte {frame[-1]:#04x} instead of {FRAME_END:#04x}")
                at += frame_bytes
                yield Frame(kind, channel, frame)
        finally:
            del self._kept[:at]

    def taken(self) -> bytes:
        """Return what is kept of an incomplete frame, and keep it no longer. ``passed`` must follow it."""
        data = bytes(self._kept)
        self._kept.clear()
        return data

    def _needed(self, data: bytes) -> int:
        """Return how many bytes of ``data`` belong to the frame that has begun to pass."""
        if not self._head:
            return min(self._passing, len(data))
        head = self._head + data[: _HEAD_BYTES - len(self._head)]
        whole = _frame_bytes(head, 0) if len(head) == _HEAD_BYTES else _HEAD_BYTES
        return min(whole - len(self._head), len(data))


def _frame_bytes(data: bytes | bytearray, at: int) -> int:
    """Return the length of the frame whose head begins at ``at``. Raise NotAmqpError if it is no head."""
    kind, _, size = FRAME_HEAD.unpack_from(data, at)
    if kind in _KINDS:
        return _HEAD_BYTES + int(size) + 1
    if kind == PROTOCOL_HEADER_BEGINS and bytes(data[at : at + 4]) == b"AMQP":
        return PROTOCOL_HEADER_BYTES
    raise NotAmqpError(f"a frame of AMQP cannot begin with the byte {kind:#04x}")
