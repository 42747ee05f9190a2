"""Stand for a broker behind a tap, and for the client in front of it, as plain sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

WITHIN_S = 120.0


class Peer:
    """What stands for a broker: each connection is handed to ``serve`` in a thread of its own."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._server = socket.create_server(("127.0.0.1", 0), backlog=500)
        self._threads: list[threading.Thread] = []
        self.port = int(self._server.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._server.accept()
                self._threads.append(threading.Thread(target=self._served, args=(accepted,)))
                self._threads[-1].start()

    def _served(self, accepted: socket.socket) -> None:
        with accepted, suppress(OSError):
            self._serve(accepted)

    def __enter__(self) -> Peer:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in [self._accepting, *self._threads]:
            thread.join()


def echo(peer: socket.socket) -> None:
    """Send back what comes, until its end; then end too."""
    while data := peer.recv(1 << 16):
        peer.sendall(data)


def received(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := peer.recv(size - len(data))):
        data += more
    return data


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), WITHIN_S)
