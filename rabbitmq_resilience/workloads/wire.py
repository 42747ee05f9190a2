"""The one place that reaches below pika's public interface, because a message must cost little.

pika builds and takes apart every frame as an object, at 20 to 40 µs a message, which would cost the broker under test
the processor that it needs. Short cuts take most of that away; the first two are confined to content frames:

- Outgoing: all messages of a publisher have the same method and header frames, so these are marshalled once by pika
  and written again for every message, many messages in one write.
- Incoming: deliveries and confirms are cut out of the stream of frames and handed to callbacks. Every other frame is
  handed to pika whole, in its order, so connection, channel, heartbeat and returns stay pika's.
- To and from the kernel: what can be sent is sent at once, and a socket is read once each time it is readable.

Frames: type (1 octet), channel (2), size (4), payload, end mark (AMQP 0-9-1, section 2.3.5).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress

from pika import BasicProperties, SelectConnection, frame, spec
from pika.exceptions import StreamLostError

from rabbitmq_resilience.workloads.message import HEADER_BYTES
from rabbitmq_resilience.workloads.routing import Turn

_FRAME = struct.Struct(">BHI")
_OVERHEAD_BYTES = _FRAME.size + 1
_END = bytes([spec.FRAME_END])
_METHOD = struct.Struct(">HH")
_DELIVER = _METHOD.pack(60, 60)
_ACK = _METHOD.pack(60, 80)
_TAG_AND_BIT = struct.Struct(">QB")
_BODY_SIZE = struct.Struct(">HHQ")
_RECEIVE_BYTES = 1 << 17
_WRITE_BYTES = 1 << 16

#: consumer tag, delivery tag, redelivered, body
OnDelivery = Callable[[bytes, int, bool, bytes], None]
#: channel, delivery tag, multiple
OnConfirm = Callable[[int, int, bool], None]


class PublishFrames:
    """The bytes on the wire of messages that differ only in their first ``HEADER_BYTES``."""

    def __init__(
        self,
        *,
        channel: int,
        turn: Turn,
        payload: bytes,
        persistent: bool,
        frame_max_bytes: int,
        copied_to: str | None = None,
        priority: int | None = None,
    ) -> None:
        """``turn``: the exchange, routing key and headers. ``copied_to`` is a second queue that the messages are routed
        to (CC, RabbitMQ's sender-selected distribution). ``payload`` is not copied where it needs several
        frames."""
        body_bytes = HEADER_BYTES + len(payload)
        method = spec.Basic.Publish(exchange=turn.exchange, routing_key=turn.routing_key, mandatory=True)
        headers = {**turn.headers, **({"CC": [copied_to]} if copied_to else {})} or None
        properties = BasicProperties(delivery_mode=2 if persistent else 1, headers=headers, priority=priority)
        first_bytes, self._after = _payload_frames(channel, payload, frame_max_bytes)
        self._before = (
            frame.Method(channel, method).marshal()
            + frame.Header(channel, body_bytes, properties).marshal()
            + _FRAME.pack(spec.FRAME_BODY, channel, HEADER_BYTES + first_bytes)
        )

    def marshal(self, header: bytes) -> bytes:
        return b"".join((self._before, header, *self._after))


@functools.lru_cache(maxsize=64)
def _payload_frames(channel: int, payload: bytes, frame_max_bytes: int) -> tuple[int, tuple[bytes | memoryview, ...]]:
    """How much of the payload is in the frame that the header begins, and the pieces of all that follows the header.
    Kept, as thousands of routing keys have the same. What needs several frames is not copied."""
    chunk_bytes = frame_max_bytes - _OVERHEAD_BYTES
    whole = memoryview(payload)
    first, *others = (
        whole[max(0, at - HEADER_BYTES) : at - HEADER_BYTES + chunk_bytes]
        for at in range(0, HEADER_BYTES + len(payload), chunk_bytes)
    )
    if not others:
        return len(first), (bytes(first) + _END,)
    pieces: list[bytes | memoryview] = [first]
    for other in others:
        pieces += (_END + _FRAME.pack(spec.FRAME_BODY, channel, len(other)), other)
    return len(first), (*pieces, _END)


class Connection(SelectConnection):  # type: ignore[misc]  # pika is not typed
    """A SelectConnection that hands deliveries and positive confirms to plain callbacks.

    ``on_delivery`` and ``on_confirm`` are None until the client sets them; ``on_data`` is called after each chunk of
    received data was worked through, which is the time to do things once for many messages.
    """

    on_delivery: OnDelivery | None = None
    on_confirm: OnConfirm | None = None
    on_data: Callable[[], None] | None = None

    #: What one of our own callbacks raised. pika only logs that and drops the connection.
    failure: Exception | None = None

    _rest = b""
    _delivery: tuple[bytes, int, bool] | None = None
    _body_left = 0
    _body: list[bytes]

    def read_in_large_pieces(self) -> None:
        """To be called once the connection is open; pika reads 4 KiB at a time until nothing is left, which costs it an
        exception each time."""
        self._transport._MAX_RECV_BYTES = _RECEIVE_BYTES
        self._transport._MAX_CONSUME_BYTES = 1  # one read each time; the poller tells again of what is left

    def write_messages(self, messages: Iterable[bytes]) -> None:
        """Queue marshalled messages for the socket, in few large pieces."""
        piece: list[bytes] = []
        piece_bytes = 0
        for message in messages:
            piece.append(message)
            piece_bytes += len(message)
            if piece_bytes >= _WRITE_BYTES:
                self._output_marshaled_frames([b"".join(piece)])
                piece, piece_bytes = [], 0
        if piece:
            self._output_marshaled_frames([b"".join(piece)])

    def _adapter_emit_data(self, data: bytes) -> None:
        """Pika would first ask the kernel to tell when the socket takes more, which it does at once: two system calls
        and a turn of the loop. What does not fit, or a socket that is lost, is left to pika."""
        sent, open_socket = 0, self._transport._sock
        if open_socket is not None and not self.unsent_bytes:
            with suppress(OSError):
                sent = open_socket.send(data)
        if sent < len(data):
            self._transport.write(data[sent:] if sent else data)

    @property
    def unsent_bytes(self) -> int:
        """What was written and has not reached the kernel."""
        return int(self._transport.get_write_buffer_size()) if self._transport else 0

    def abort(self, reason: str) -> None:
        """Drop the connection at once: a polite close waits for an answer that a broker in trouble never gives."""
        if not self.is_closed:
            self._terminate_stream(StreamLostError(reason))

    def _on_data_available(self, data_in: bytes) -> None:
        try:
            self._work_off(data_in)
        except Exception as error:
            self.failure = error
            raise

    def _work_off(self, data_in: bytes) -> None:
        data = self._rest + data_in if self._rest else data_in
        at, fast_bytes = 0, 0
        while len(data) - at >= _OVERHEAD_BYTES:
            kind, channel, size = _FRAME.unpack_from(data, at)
            end = at + _OVERHEAD_BYTES + size
            if kind > spec.FRAME_HEARTBEAT:  # no frame: the broker's answer to a protocol version it does not speak
                end = len(data)
            elif end > len(data):
                break
            if self._take(kind, channel, data, at + _FRAME.size, end - 1):
                fast_bytes += end - at
            else:
                super()._on_data_available(data[at:end])
                if self.is_closed:
                    return
            at = end
        self._rest = data[at:]
        self.bytes_received += fast_bytes
        if self.on_data is not None:
            self.on_data()

    def _take(self, kind: int, channel: int, data: bytes, start: int, end: int) -> bool:
        """Work off one frame's payload if it belongs to a delivery or is a confirm."""
        if self._delivery is not None and kind in (spec.FRAME_HEADER, spec.FRAME_BODY):
            self._take_content(kind, data, start, end)
            return True
        if kind != spec.FRAME_METHOD:
            return False
        method = data[start : start + _METHOD.size]
        if method == _DELIVER and self.on_delivery is not None:
            tag_end = start + 5 + data[start + 4]
            delivery_tag, redelivered = _TAG_AND_BIT.unpack_from(data, tag_end)
            self._delivery = (data[start + 5 : tag_end], delivery_tag, bool(redelivered))
            self._body = []
            return True
        if method == _ACK and self.on_confirm is not None:
            delivery_tag, multiple = _TAG_AND_BIT.unpack_from(data, start + 4)
            self.on_confirm(channel, delivery_tag, bool(multiple))
            return True
        return False

    def _take_content(self, kind: int, data: bytes, start: int, end: int) -> None:
        if kind == spec.FRAME_HEADER:
            self._body_left = _BODY_SIZE.unpack_from(data, start)[2]
        else:
            self._body.append(data[start:end])
            self._body_left -= end - start
        if self._body_left == 0 and self._delivery is not None and self.on_delivery is not None:
            delivery, self._delivery = self._delivery, None
            self.on_delivery(*delivery, self._body[0] if len(self._body) == 1 else b"".join(self._body))
