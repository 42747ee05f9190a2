"""Publish and receive messages below pika's public interface, so that a message costs little. No other module does so.

pika builds and parses every frame as an object. That takes 20 to 40 µs a message, and the broker under test needs this
processor time. Shortcuts avoid most of it; the first two apply only to content frames:

- Outgoing: all messages of a publisher have the same method and header frames. So pika marshals them once, and they
  are written again for every message, many messages in one write.
- Incoming: callbacks get deliveries and confirms directly from the stream of frames. pika gets every other frame whole
  and in order, and so still handles connections, channels, heartbeats and returns.
- To and from the kernel: data is sent at once if the kernel takes it, and a socket is read once each time it is
  readable.

Frames: type (1 octet), channel (2), size (4), payload, end mark (AMQP 0-9-1, section 2.3.5).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress

from pika import BasicProperties, SelectConnection, frame, spec
from pika.exceptions import StreamLostError

from rabbitmq_resilience.workload.message import HEADER_BYTES
from rabbitmq_resilience.workload.routing import PublishArguments

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
    """The wire format of messages that differ only in their first ``HEADER_BYTES``."""

    def __init__(
        self,
        *,
        channel: int,
        turn: PublishArguments,
        payload: bytes,
        persistent: bool,
        frame_max_bytes: int,
        copied_to: str | None = None,
        priority: int | None = None,
    ) -> None:
        """``copied_to`` is a second queue that the messages are routed to (CC, RabbitMQ's sender-selected
        distribution). ``payload`` is not copied if it needs several frames."""
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
    """Return the number of payload bytes in the frame that begins with the header, and all pieces after the header.

    The result is cached, as thousands of routing keys share it. A payload that needs several frames is not copied.
    """
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

    ``on_delivery`` and ``on_confirm`` are None until the client sets them. ``on_data`` is called after each chunk of
    received data: then a client can do work once for many messages.
    """

    on_delivery: OnDelivery | None = None
    on_confirm: OnConfirm | None = None
    on_data: Callable[[], None] | None = None

    #: The error of one of our own callbacks. pika only logs it and drops the connection.
    failure: Exception | None = None

    _rest = b""
    _delivery: tuple[bytes, int, bool] | None = None
    _body_left = 0
    _body: list[bytes]

    def read_in_large_pieces(self) -> None:
        """Read larger pieces than pika; call this when the connection is open. pika reads 4 KiB at a time until nothing
        is left, which costs an exception each time."""
        self._transport._MAX_RECV_BYTES = _RECEIVE_BYTES
        self._transport._MAX_CONSUME_BYTES = 1  # one read each time; the poller reports the rest again

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
        """Send data at once. Leave to pika the part that does not fit, and lost sockets. pika would first have the
        kernel report that the socket takes data, which it does at once: two system calls and a turn of the loop."""
        sent, open_socket = 0, self._transport._sock
        if open_socket is not None and not self.unsent_bytes:
            with suppress(OSError):
                sent = open_socket.send(data)
        if sent < len(data):
            self._transport.write(data[sent:] if sent else data)

    @property
    def unsent_bytes(self) -> int:
        """Return how many written bytes have not reached the kernel."""
        return int(self._transport.get_write_buffer_size()) if self._transport else 0

    def abort(self, reason: str) -> None:
        """Drop the connection at once: a clean close waits for an answer, which a faulty broker never gives."""
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
        """Handle one frame's payload if it is a confirm or part of a delivery; return whether it was."""
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
