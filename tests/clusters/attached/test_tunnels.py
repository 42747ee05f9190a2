"""How a port-forward ends, with the library's own thread over a connection of the test's."""

from __future__ import annotations

import socket
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.stream.ws_client import PortForward
from websocket import ABNF, WebSocket

from rabbitmq_resilience.clusters.attached.kubernetes import tunnels


class SlowToAnswer(WebSocket):
    """It is connected no more some time before it has answered that the other side closes."""

    def send(self, payload: Any, opcode: int = ABNF.OPCODE_TEXT) -> int:
        time.sleep(0.3)  # who closes the connection too soon has done so by then
        return super().send(payload, opcode)


@pytest.fixture
def sides() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def ended(websocket: WebSocket, ours: socket.socket, theirs: socket.socket, said: bytes) -> None:
    """pytest makes it a failure if the library's thread breaks."""
    websocket.sock, websocket.connected = ours, True
    library: Any = PortForward
    forwarded = library(websocket, [5672])
    theirs.sendall(said)
    forwarded.close()
    used = weakref.ref(forwarded)
    del forwarded
    tunnels._end(websocket, used)
    assert used() is None
    assert ours.fileno() == -1


def test_the_other_side_closes_first(sides: tuple[socket.socket, socket.socket]) -> None:
    ended(SlowToAnswer(), *sides, ABNF.create_frame(b"\x03\xe8", ABNF.OPCODE_CLOSE).format())


def test_the_other_side_says_half_of_something(
    sides: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnels, "_ENDS_WITHIN_S", 0.5)
    ended(WebSocket(), *sides, ABNF.create_frame(b"\x00\x28\x16", ABNF.OPCODE_BINARY).format()[:3])
