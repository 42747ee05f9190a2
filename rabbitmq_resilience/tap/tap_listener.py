"""Listen for the connections of one process of clients to one broker, as long as the broker accepts them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from rabbitmq_resilience.tap.forwarding import CONNECT_WITHIN_S, Copies, TappedConnection
from rabbitmq_resilience.tap.method_rules import ActiveRule

#: How often a broker that refuses connections is tried again.
RETRY_S = 0.05
#: As many clients may come at once when a broker is back.
_BACKLOG = 1_024


class TapListener:
    """The address at which one process of clients finds one broker. While the broker refuses connections, so does the
    listener."""

    def __init__(
        self,
        process: str,
        node: str,
        target: tuple[str, int],
        *,
        rules: Sequence[ActiveRule],
        copies: Copies,
        next_number: Callable[[], int],
        client_tls: ssl.SSLContext | None = None,
        upstream_tls: dict[str, Any] | None = None,
    ) -> None:
        self.process = process
        self.node = node
        self.target = target
        self.rules = rules
        self.copies = copies
        self.upstream_tls = upstream_tls or {}
        self._client_tls = client_tls
        self._next_number = next_number
        self._connections: set[TappedConnection] = set()
        self._server: asyncio.Server | None = None
        self._address = ("127.0.0.1", 0)
        self._waits: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def name(self) -> str:
        return f"{self.process}@{self.node}"

    @property
    def connections(self) -> Sequence[TappedConnection]:
        return tuple(self._connections)

    async def listen(self, host: str) -> int:
        """Begin to listen, and return the port."""
        self._address = (host, 0)
        await self._open()
        return self._address[1]

    async def _open(self) -> None:
        host, port = self._address
        self._server = await asyncio.get_running_loop().create_server(
            self._accepted, host, port, ssl=self._client_tls, reuse_address=True, backlog=_BACKLOG
        )
        self._address = self._server.sockets[0].getsockname()[:2]

    def _accepted(self) -> asyncio.Protocol:
        return TappedConnection(self._next_number(), self).client

    def refuse(self) -> None:
        """Refuse connections until the broker accepts them again."""
        if self._server is None or self._closed:
            return
        self._server.close()
        self._server = None
        self._waits = asyncio.get_running_loop().create_task(self._until_accepted())

    async def _until_accepted(self) -> None:
        while not self._closed and not (await self._accepts() and await self._opens()):
            await asyncio.sleep(RETRY_S)

    async def _opens(self) -> bool:
        with contextlib.suppress(OSError):  # another program has the port for a moment
            await self._open()
        return self._server is not None

    async def _accepts(self) -> bool:
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                _, writer = await asyncio.open_connection(*self.target)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    def remember(self, connection: TappedConnection) -> None:
        self._connections.add(connection)

    def forget(self, connection: TappedConnection) -> None:
        self._connections.discard(connection)

    def advance(self) -> None:
        """Let all connections follow a change of the rules."""
        for connection in tuple(self._connections):
            connection.advance()

    def close(self) -> None:
        """Stop listening, and reset all connections."""
        self._closed = True
        if self._waits is not None:
            self._waits.cancel()
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.reset()
