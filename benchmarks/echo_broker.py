"""Serve AMQP 0-9-1 and only hand messages on, to measure the time of clients without that of a broker.

The echo serves connections on loopback, with the methods that the compared clients need. It answers each method as if
it had worked. A message to any exchange goes at once to the consumer that subscribed last (or waits for the first one),
and is confirmed. Nothing is limited; acknowledgements are read and ignored. The echo is a process of its own, as a
broker is, and its time is part of what both sides measure.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from typing import Any

from pika import frame, spec

_FRAME = struct.Struct(">BHI")
_METHOD = struct.Struct(">HH")
_OVERHEAD_BYTES = _FRAME.size + 1
_PUBLISH = _METHOD.pack(60, 40)
_DELIVER = _METHOD.pack(60, 60)
_TAG_AND_BIT = struct.Struct(">QB")
#: The beginning of a publish: the number of the method, and an unused ticket. The exchange and key follow.
_BEFORE_PLACE_BYTES = _METHOD.size + 2
_BODY_SIZE = struct.Struct(">HHQ")
_END = bytes([spec.FRAME_END])
_GREETING_BYTES = 8
_RECEIVE_BYTES = 1 << 17
_FRAME_MAX_BYTES = 131_072
#: The capabilities that the echo announces to clients.
_CAPABILITIES = {"publisher_confirms": True, "basic.nack": True, "consumer_cancel_notify": True}


@dataclass(eq=False)
class Client:
    """One connection. ``confirmed``: {channel: the number of its messages}, for channels with confirms."""

    peer: socket.socket
    rest: bytes = b""
    greeted: bool = False
    confirmed: dict[int, int] = field(default_factory=dict)
    #: The frames of a message with an incomplete body, its exchange and key, and how many bytes are still to come.
    message: list[bytes] = field(default_factory=list)
    place: bytes = b""
    body_left: int = 0
    out: list[bytes] = field(default_factory=list)

    def answer(self, channel: int, method: Any) -> None:
        self.out.append(frame.Method(channel, method).marshal())

    def flush(self) -> None:
        """Send all answers. Raise OSError if the client is gone."""
        if self.out:
            data, self.out = b"".join(self.out), []
            self.peer.sendall(data)


#: The frames of a message, and its exchange and key.
Message = tuple[list[bytes], bytes]


class Echo:
    def __init__(self) -> None:
        self._waiting: list[Message] = []
        self._consumer: tuple[Client, int, bytes] | None = None  # with its channel, and its tag as a short string
        self._delivered = 0
        self._touched: set[Client] = set()

    def receive(self, client: Client, data: bytes) -> None:
        """Handle data from a client, and answer it."""
        data = client.rest + data
        at = 0
        if not client.greeted and len(data) >= _GREETING_BYTES:
            client.greeted, at = True, _GREETING_BYTES
            start = spec.Connection.Start(
                server_properties={"capabilities": _CAPABILITIES}, mechanisms="PLAIN AMQPLAIN"
            )
            client.answer(0, start)
        self._touched = {client}
        while client.greeted and len(data) - at >= _OVERHEAD_BYTES:
            kind, channel, size = _FRAME.unpack_from(data, at)
            end = at + _OVERHEAD_BYTES + size
            if end > len(data):
                break
            self._frame(client, kind, channel, data[at:end])
            at = end
        client.rest = data[at:]
        for touched in self._touched:
            touched.flush()

    def left(self, client: Client) -> None:
        """Forget a client that left, and the waiting messages: they are not for the next clients."""
        self._waiting.clear()
        if self._consumer is not None and self._consumer[0] is client:
            self._consumer = None

    def _frame(self, client: Client, kind: int, channel: int, data: bytes) -> None:
        payload = data[_FRAME.size : -1]
        if kind == spec.FRAME_METHOD and payload.startswith(_PUBLISH):
            client.place = payload[_BEFORE_PLACE_BYTES:-1]
        elif kind == spec.FRAME_METHOD:
            self._method(client, channel, frame.decode_frame(data)[1].method)
        elif kind == spec.FRAME_HEADER:
            client.message, client.body_left = [data], _BODY_SIZE.unpack_from(payload)[2]
        elif kind == spec.FRAME_BODY:
            client.message.append(data)
            client.body_left -= len(payload)
            if client.body_left == 0:
                self._hand_on(client, channel)

    def _hand_on(self, client: Client, channel: int) -> None:
        self._waiting.append((client.message, client.place))
        self._deliver()
        if channel in client.confirmed:
            client.confirmed[channel] += 1
            client.answer(channel, spec.Basic.Ack(client.confirmed[channel]))

    def _deliver(self) -> None:
        if self._consumer is None:
            return
        consumer, channel, tag = self._consumer
        number = channel.to_bytes(2, "big")
        for frames, place in self._waiting:
            self._delivered += 1
            method = b"".join((_DELIVER, tag, _TAG_AND_BIT.pack(self._delivered, 0), place))
            consumer.out += (_FRAME.pack(spec.FRAME_METHOD, channel, len(method)), method, _END)
            consumer.out += [b"".join((piece[:1], number, piece[3:])) for piece in frames]
        self._waiting.clear()
        self._touched.add(consumer)

    def _method(self, client: Client, channel: int, method: Any) -> None:
        if isinstance(method, spec.Connection.StartOk):
            client.answer(0, spec.Connection.Tune(channel_max=2047, frame_max=_FRAME_MAX_BYTES, heartbeat=60))
        elif isinstance(method, spec.Confirm.Select):
            client.confirmed[channel] = 0
            client.answer(channel, spec.Confirm.SelectOk())
        elif isinstance(method, spec.Basic.Consume):
            tag = method.consumer_tag or f"consumer-{channel}"
            self._consumer, self._delivered = (client, channel, bytes([len(tag)]) + tag.encode()), 0
            client.answer(channel, spec.Basic.ConsumeOk(tag))
            self._deliver()
        elif isinstance(method, spec.Basic.Cancel):
            client.answer(channel, spec.Basic.CancelOk(method.consumer_tag))
        elif isinstance(method, spec.Queue.Declare):
            client.answer(channel, spec.Queue.DeclareOk(method.queue, 0, 0))
        elif type(method) in _ANSWERS:
            client.answer(channel, _ANSWERS[type(method)]())


#: Methods that only need an answer. Methods that are missing here have none, such as acknowledgements.
_ANSWERS: Mapping[type, Callable[[], Any]] = {
    spec.Connection.Open: spec.Connection.OpenOk,
    spec.Connection.Close: spec.Connection.CloseOk,
    spec.Channel.Open: spec.Channel.OpenOk,
    spec.Channel.Close: spec.Channel.CloseOk,
    spec.Basic.Qos: spec.Basic.QosOk,
    spec.Queue.Bind: spec.Queue.BindOk,
    spec.Exchange.Declare: spec.Exchange.DeclareOk,
}


def _serve(answer: Pipe) -> None:
    """Send the port to ``answer``, then serve until the process is killed."""
    echo, selector = Echo(), selectors.DefaultSelector()
    with socket.create_server(("127.0.0.1", 0)) as server:
        selector.register(server, selectors.EVENT_READ, None)
        answer.send(server.getsockname()[1])
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    accepted, _ = server.accept()
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(accepted, selectors.EVENT_READ, Client(accepted))
                else:
                    _hear(echo, selector, key.data)


def _hear(echo: Echo, selector: selectors.BaseSelector, client: Client) -> None:
    try:
        data = client.peer.recv(_RECEIVE_BYTES)
        if data:
            echo.receive(client, data)
            return
    except OSError:
        pass
    echo.left(client)
    selector.unregister(client.peer)
    client.peer.close()


def echoing() -> AbstractContextManager[int]:
    """Run the echo in a process of its own, and yield its port."""
    return serving(_serve)


@contextmanager
def serving(serve: Callable[..., None], *args: Any) -> Iterator[int]:
    """Run a server in a process of its own, and yield its port, which it sends to the pipe that is its first
    argument."""
    context = get_context("spawn")
    ours, its = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(its, *args), daemon=True)
    process.start()
    its.close()  # so that an early end of the process is noticed
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()
