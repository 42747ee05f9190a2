import socket
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec
from pika.adapters.select_connection import IOLoop

from rabbitmq_resilience.workload.message import HEADER_BYTES
from rabbitmq_resilience.workload.routing import PublishArguments
from rabbitmq_resilience.workload.wire import Connection, PublishFrames

Seen = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def loop() -> Any:
    """An I/O loop that nothing runs."""
    return SimpleNamespace(READ=IOLoop.READ, WRITE=IOLoop.WRITE, ERROR=IOLoop.ERROR)


class Unconnected(Connection):
    """A connection without a stream, by the methods that pika's adapters override."""

    def __init__(self, loop: Any, seen: Seen) -> None:
        super().__init__(custom_ioloop=loop)
        self._seen = seen

    def receive(self, data: bytes) -> None:
        self._on_data_available(data)

    def carry_by(self, transport: Any) -> None:
        self._transport = transport

    def _adapter_connect_stream(self) -> None: ...

    def _process_frame(self, value: object) -> None:
        self._seen.append(("pika", type(value).__name__))


def connection(loop: Any) -> tuple[Unconnected, Seen]:
    """A connection that is not connected; frames that it hands to pika are seen as ("pika", type)."""
    seen: Seen = []
    made = Unconnected(loop, seen)
    made.on_delivery = lambda *delivery: seen.append(("delivery", *delivery))
    made.on_confirm = lambda channel, tag, multiple: seen.append(("confirm", channel, tag, multiple))
    return made, seen


def delivery(tag: int, body: bytes, *, redelivered: bool = False, frame_bytes: int = 100) -> bytes:
    method = spec.Basic.Deliver("q0", tag, redelivered, "", "a queue")
    pieces = [body[at : at + frame_bytes] for at in range(0, len(body), frame_bytes)]
    content = b"".join(frame.Body(1, piece).marshal() for piece in pieces)
    properties = spec.BasicProperties(delivery_mode=2)
    return bytes(frame.Method(1, method).marshal() + frame.Header(1, len(body), properties).marshal() + content)


def confirm(tag: int, *, multiple: bool, channel: int = 1) -> bytes:
    return bytes(frame.Method(channel, spec.Basic.Ack(tag, multiple)).marshal())


HEARTBEAT = frame.Heartbeat().marshal()


@given(st.lists(st.integers(1, 400), max_size=10))
def test_frames_are_taken_apart_wherever_the_stream_is_cut(loop: Any, sizes: list[int]) -> None:
    long = b"x" * 250
    stream = (
        confirm(1, multiple=False)
        + delivery(1, b"short")
        + HEARTBEAT
        + delivery(2, long, redelivered=True)
        + delivery(3, b"")
        + frame.Method(1, spec.Basic.Cancel("q0")).marshal()
        + confirm(7, multiple=True, channel=300)
    )
    made, seen = connection(loop)
    for size in [*sizes, len(stream)]:
        if stream[:size]:
            made.receive(stream[:size])
        stream = stream[size:]
    assert made.bytes_received > 0
    assert seen == [
        ("confirm", 1, 1, False),
        ("delivery", b"q0", 1, False, b"short"),
        ("pika", "Heartbeat"),
        ("delivery", b"q0", 2, True, long),
        ("delivery", b"q0", 3, False, b""),
        ("pika", "Method"),
        ("confirm", 300, 7, True),
    ]


def test_returned_messages_stay_with_pika(loop: Any) -> None:
    made, seen = connection(loop)
    method = frame.Method(1, spec.Basic.Return(312, "NO_ROUTE", "", "q")).marshal()
    header = frame.Header(1, 3, spec.BasicProperties()).marshal()
    made.receive(method + header + frame.Body(1, b"abc").marshal() + confirm(4, multiple=False))
    assert seen == [("pika", "Method"), ("pika", "Header"), ("pika", "Body"), ("confirm", 1, 4, False)]


def test_another_protocol_version_is_left_to_pika(loop: Any) -> None:
    made, seen = connection(loop)
    made.receive(b"AMQP\x00\x00\x09\x01" + b"more")
    assert seen == [("pika", "ProtocolHeader")]


def test_what_a_callback_raises_is_kept(loop: Any) -> None:
    made, _ = connection(loop)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    made.on_delivery = fail
    with pytest.raises(OSError, match="disk full"):
        made.receive(delivery(1, b"m"))
    assert str(made.failure) == "disk full"


@given(st.integers(0, 500), st.sampled_from([64, 100, 4096]))
def test_published_frames_are_those_that_pika_would_write(payload_bytes: int, frame_max_bytes: int) -> None:
    payload = bytes(range(256)) * 2
    payload = payload[:payload_bytes]
    frames = PublishFrames(
        channel=1,
        turn=PublishArguments("", "q1", {}),
        payload=payload,
        persistent=True,
        frame_max_bytes=frame_max_bytes,
    )
    header = b"h" * HEADER_BYTES
    body, piece_bytes = header + payload, frame_max_bytes - 8
    expected = frame.Method(1, spec.Basic.Publish(routing_key="q1", mandatory=True)).marshal()
    expected += frame.Header(1, len(body), spec.BasicProperties(delivery_mode=2)).marshal()
    for at in range(0, len(body), piece_bytes):
        expected += frame.Body(1, body[at : at + piece_bytes]).marshal()
    assert frames.marshal(header) == expected


@pytest.mark.parametrize("copied_to", [None, "copies"])
def test_a_message_says_where_its_copy_goes(copied_to: str | None) -> None:
    frames = PublishFrames(
        channel=1,
        turn=PublishArguments("", "q1", {}),
        payload=b"",
        persistent=True,
        frame_max_bytes=4096,
        copied_to=copied_to,
    )
    marshalled = frames.marshal(bytes(HEADER_BYTES))
    read, _ = frame.decode_frame(marshalled)
    _, header = frame.decode_frame(marshalled[read:])
    assert header.properties.headers == ({"CC": [copied_to]} if copied_to else None)


def test_a_message_is_published_to_its_exchange_with_its_key_and_headers() -> None:
    turn = PublishArguments("prices", "eur.1", {"kind": "tick"})
    frames = PublishFrames(channel=1, turn=turn, payload=b"", persistent=True, frame_max_bytes=4096, copied_to="copies")
    marshalled = frames.marshal(bytes(HEADER_BYTES))
    read, method = frame.decode_frame(marshalled)
    _, header = frame.decode_frame(marshalled[read:])
    assert (method.method.exchange, method.method.routing_key, method.method.mandatory) == ("prices", "eur.1", True)
    assert header.properties.headers == {"kind": "tick", "CC": ["copies"]}


def test_what_does_not_fit_waits_behind_what_was_sent(loop: Any) -> None:
    made, _ = connection(loop)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        waiting: list[bytes] = []
        made.carry_by(
            SimpleNamespace(_sock=ours, write=waiting.append, get_write_buffer_size=lambda: sum(map(len, waiting)))
        )
        messages = [bytes([number]) * 50_000 for number in range(100)]
        made.write_messages(messages)
        assert waiting, "the kernel does not take as much"
        ours.shutdown(socket.SHUT_WR)
        taken = b"".join(iter(lambda: theirs.recv(1 << 20), b""))
        assert taken
        assert taken + b"".join(waiting) == b"".join(messages)
        waiting.clear()
        ours.close()
        made.write_messages([b"on a socket that is gone"])
        assert waiting == [b"on a socket that is gone"], "it is for pika to notice"
        made.carry_by(None)
