"""How a port-forward ends, with the library's own thread over a connection of the test's."""

from __future__ import annotations

import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.stream.ws_client import PortForward
from websocket import ABNF, WebSocket

from rabbitmq_resilience.extensions.attached.kubernetes import tunnels
from rabbitmq_resilience.tools.waiting import wait_until

pytestmark = pytest.mark.core


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


class NoPods:
    namespace = "shop"

    @contextmanager
    def api(self) -> Iterator[Any]:
        yield SimpleNamespace(connect_get_namespaced_pod_portforward=None)


@pytest.fixture
def ended(
    sides: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> Callable[[WebSocket, bytes], None]:
    """Ends a connection through a tunnel after the other side has said something. pytest makes it a failure if the
    library's thread breaks."""
    ours, theirs = sides

    def end(websocket: WebSocket, said: bytes) -> None:
        websocket.sock, websocket.connected = ours, True
        used = list[weakref.ref[Any]]()
        library: Any = PortForward

        def portforward(*_: object, **__: object) -> Any:
            forwarded = library(websocket, [5672])
            theirs.sendall(said)
            used.append(weakref.ref(forwarded))
            return forwarded

        monkeypatch.setattr(tunnels, "portforward", portforward)
        before = set(threading.enumerate())
        pods: Any = NoPods()
        with tunnels.Tunnel(pods, "rabbit-0", 5672) as tunnel:
            socket.create_connection(("127.0.0.1", tunnel.port)).close()
            wait_until(lambda: used and used[0]() is None, timeout_s=30, what="the port-forward to end")
            wait_until(lambda: ours.fileno() == -1, timeout_s=30, what="its connection to be closed")
        for thread in set(threading.enumerate()) - before:
            thread.join(30)

    return end


def test_the_other_side_closes_first(ended: Callable[[WebSocket, bytes], None]) -> None:
    ended(SlowToAnswer(), ABNF.create_frame(b"\x03\xe8", ABNF.OPCODE_CLOSE).format())


def test_the_other_side_says_half_of_something(
    ended: Callable[[WebSocket, bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnels, "ENDS_WITHIN_S", 0.5)
    ended(WebSocket(), ABNF.create_frame(b"\x00\x28\x16", ABNF.OPCODE_BINARY).format()[:3])
