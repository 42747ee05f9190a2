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
_unpack_head = FRAME_HEAD.unpack_from
_IDS_BYTES = 4
_KINDS = frozenset({1, 2, 3, 8})
_PROTOCOL = b"AMQP"
#: A longer frame is a damaged head: brokers take no message that is as long.
FRAME_BYTES_MAX = 1 << 29


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

    @property
    def between_frames(self) -> bool:
        """Return whether the last frame that began to pass has passed to its end."""
        return not self._passing and not self._head

    def passed(self, data: bytes) -> None:
        """Follow bytes that were passed on. Raise NotAmqpError if they cannot be a frame's head."""
        if self._head:
            data = self._head + data
        at, end = self._passing, len(data)
        while end - at >= _HEAD_BYTES:
            kind, _, size = _unpack_head(data, at)
            at += size + _HEAD_BYTES + 1 if kind in _KINDS and size < FRAME_BYTES_MAX else _frame_bytes(data, at)
        self._passing = max(0, at - end)
        self._head = data[at:]
        _check_begin(self._head)

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
                kind, channel, _ = _unpack_head(frame)
                if kind == PROTOCOL_HEADER_BEGINS:
                    channel = 0
                elif frame[-1] != FRAME_END:
                    raise NotAmqpError(f"a frame ends with the byte {frame[-1]:#04x} instead of {FRAME_END:#04x}")
                at += frame_bytes
                yield Frame(kind, channel, frame)
            _check_begin(self._kept[at : at + _HEAD_BYTES])
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
    kind, _, size = _unpack_head(data, at)
    if kind == PROTOCOL_HEADER_BEGINS and data.startswith(_PROTOCOL, at):
        return PROTOCOL_HEADER_BYTES
    if kind not in _KINDS:
        raise NotAmqpError(f"a frame of AMQP cannot begin with the byte {kind:#04x}")
    if size >= FRAME_BYTES_MAX:
        raise NotAmqpError(f"a frame of AMQP does not have {size:,} bytes")
    return _HEAD_BYTES + int(size) + 1


def _check_begin(data: bytes | bytearray) -> None:
    """Raise NotAmqpError if no head begins with these bytes, so that other protocols do not wait for more."""
    if data and data[0] not in _KINDS and not _PROTOCOL.startswith(data[: len(_PROTOCOL)]):
        raise NotAmqpError(f"a frame of AMQP cannot begin with the byte {data[0]:#04x}")
