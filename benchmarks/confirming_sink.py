"""Confirm the messages of one publisher after another by their size alone, so that a server costs next to nothing."""

from __future__ import annotations

import contextlib
import socket
import struct
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection as Pipe

from pika import frame, spec

from benchmarks.echo_broker import Client, Echo, serving

_RECEIVE_BYTES = 1 << 17
_TAG_AND_BIT = struct.Struct(">QB")


def sink(message_bytes: int) -> AbstractContextManager[int]:
    """Run a sink in a process of its own, and yield its port. Each message takes ``message_bytes`` on the wire, with
    all its frames, and gets a confirm of its own."""
    return serving(_serve, message_bytes)


def _serve(answer: Pipe, message_bytes: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer.send(server.getsockname()[1])
        while True:
            peer, _ = server.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with peer, contextlib.suppress(OSError):
                if _await_confirms(peer):
                    _confirm(peer, message_bytes)


def _await_confirms(peer: socket.socket) -> bool:
    """Answer a client until its channel has confirms. Return whether it came to that. The client waits for each
    answer."""
    echo, client = Echo(), Client(peer)
    while not client.confirmed:
        data = peer.recv(_RECEIVE_BYTES)
        if not data:
            return False
        echo.receive(client, data)
    return True


def _confirm(peer: socket.socket, message_bytes: int) -> None:
    begin, end = frame.Method(1, spec.Basic.Ack(0)).marshal().split(_TAG_AND_BIT.pack(0, 0))
    received, confirmed = 0, 0
    while data := peer.recv(_RECEIVE_BYTES):
        received += len(data)
        whole = received // message_bytes
        numbers = range(confirmed + 1, whole + 1)
        confirmed = whole
        if numbers:
            peer.sendall(b"".join(begin + _TAG_AND_BIT.pack(number, 0) + end for number in numbers))
