"""Forward one connection of a client to its broker, and hand copies of what the client sees to a recorder."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import struct
from collections.abc import Sequence
from typing import Any, Protocol

from rabbitmq_resilience.tap.amqp_methods import Side, word
from rabbitmq_resilience.tap.method_rules import ActiveRule, MethodRule
from rabbitmq_resilience.tap.ruled_connection import RuledConnection

#: While more than this is held back for a connection, no more is read from it.
HELD_BYTES_MAX = 64 << 20
#: How often a side is looked at for its end while nothing is read from it.
LOOK_EVERY_S = 0.5
CONNECT_WITHIN_S = 30.0
#: SO_LINGER that resets a connection instead of closing it.
_RESET = struct.pack("ii", 1, 0)


class Copies(Protocol):
    """What takes copies of the bytes, and remarks on connections. It returns at once."""

    def sent(self, connection: int, sender: Side, data: bytes) -> None:
        """Take bytes that the client has sent, or that it gets."""

    def remark(self, connection: int, what: str, **fields: Any) -> None: ...


class Listener(Protocol):
    """What a connection needs of the listener that took it. ``target`` is the broker's address, and ``upstream_tls``
    has the arguments for a connection to it with TLS."""

    process: str
    node: str
    target: tuple[str, int]
    upstream_tls: dict[str, Any]
    rules: Sequence[ActiveRule]
    copies: Copies

    @property
    def name(self) -> str: ...

    def remember(self, connection: TappedConnection) -> None: ...

    def forget(self, connection: TappedConnection) -> None: ...

    def refuse(self) -> None:
        """Refuse connections until the broker accepts them again."""


class _End(asyncio.Protocol):
    """One socket of a connection."""

    def __init__(self, connection: TappedConnection, side: Side) -> None:
        self._connection = connection
        self._side = side
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self._side is Side.CLIENT:
            transport.pause_reading()  # until the broker is connected
            self._connection.opened()

    def data_received(self, data: bytes) -> None:
        self._connection.received(self._side, data)

    def eof_received(self) -> bool:
        return self._connection.ended(self._side)

    def pause_writing(self) -> None:
        self._connection.paused(self._side.other, True)

    def resume_writing(self) -> None:
        self._connection.paused(self._side.other, False)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.lost(self._side, error)


class TappedConnection:
    """One connection of a client to a broker through a tap."""

    def __init__(self, number: int, listener: Listener) -> None:
        self._number = number
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._ends = {side: _End(self, side) for side in Side}
        self._paused: set[tuple[Side, str]] = set()
        self._ended: list[Side] = []
        self._lost = False
        #: Sides whose end was passed on.
        self._passed_ends: set[Side] = set()
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        self._answered = False  # the broker has sent something
        self._task: asyncio.Task[None] | None = None
        self._ruled = RuledConnection(listener.process, listener.rules, self._send, self._note)

    @property
    def client(self) -> asyncio.Protocol:
        return self._ends[Side.CLIENT]

    def opened(self) -> None:
        """Connect to the broker, now that the client has connected."""
        self._listener.remember(self)
        self._listener.copies.remark(
            self._number,
            "opened",
            listener=self._listener.name,
            process=self._listener.process,
            node=self._listener.node,
        )
        self._task = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                await self._loop.create_connection(
                    lambda: self._ends[Side.BROKER], *self._listener.target, **self._listener.upstream_tls
                )
        except (OSError, TimeoutError, ssl.SSLError) as error:
            self._listener.copies.remark(self._number, "refused", detail=f"{type(error).__name__}: {error}")
            self._end(reset=True)
            if isinstance(error, ConnectionRefusedError):
                self._listener.refuse()
            return
        if self._over:
            self._abort(Side.BROKER)
        elif (transport := self._ends[Side.CLIENT].transport) is not None:
            transport.resume_reading()

    def received(self, sender: Side, data: bytes) -> None:
        if self._over:
            return
        if sender is Side.CLIENT:
            self._listener.copies.sent(self._number, Side.CLIENT, data)
        else:
            self._answered = True
        self._ruled.received(sender, data, now_s=self._loop.time())
        self._follow()

    def advance(self) -> None:
        """Let go what rules hold no longer."""
        if not self._over:
            self._timer = None
            self._ruled.advanced(now_s=self._loop.time())
            self._follow()

    def _follow(self) -> None:
        """Set the timer for what is held, bound how much that is, and close a connection that a rule has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (due_s := self._ruled.due_s) is not None:
            self._timer = self._loop.call_at(due_s, self.advance)
        if due_s is not None or self._paused:
            for side in Side:
                self.paused(side, self._ruled.held_bytes(side) > HELD_BYTES_MAX, why="held")
        if self._ruled.closed_for:
            self._end(reset=False)

    def _send(self, receiver: Side, data: bytes) -> None:
        transport = self._ends[receiver].transport
        if transport is None or transport.is_closing() or receiver.other in self._passed_ends:
            return
        transport.write(data)
        if receiver is Side.CLIENT:
            self._listener.copies.sent(self._number, Side.BROKER, data)

    def _note(self, what: str, rule: MethodRule, channel: int) -> None:
        self._listener.copies.remark(self._number, what, channel=channel, rule=rule.as_fields())

    def paused(self, side: Side, stops: bool, *, why: str = "full") -> None:
        """Read nothing from a side while its bytes cannot go on, and read on when no reason is left."""
        before = self._is_paused(side)
        (self._paused.add if stops else self._paused.discard)((side, why))
        transport, now = self._ends[side].transport, self._is_paused(side)
        if transport is not None and before is not now and not transport.is_closing():
            (transport.pause_reading if now else transport.resume_reading)()
            self._look(side)

    def _is_paused(self, side: Side) -> bool:
        return any(each is side for each, _ in self._paused)

    def ended(self, side: Side) -> bool:
        """Pass on that a side sends nothing more. Return whether its socket stays open for the other direction."""
        self._ended.append(side)
        if side is Side.BROKER and not self._answered:  # as a proxy does whose broker refuses
            self._end(reset=True)
            return False
        self._ruled.ended(side)
        self._follow()
        self._remark_lost(side)  # now: some clients keep what has ended for minutes, and a frozen broker says nothing
        self._passed_ends.add(side)
        ends = [self._ends[each].transport for each in (side.other, side)]
        if len(self._ended) == len(Side) or any(t is None or t.is_closing() or not t.can_write_eof() for t in ends):
            self._end(reset=False)
            return False
        assert ends[0] is not None
        ends[0].write_eof()
        return True

    def lost(self, side: Side, error: Exception | None) -> None:
        """End the other socket as this one ended: by a close, or by a reset."""
        if self._over:
            return
        self._ended.append(side)
        self._end(reset=error is not None, detail=str(error or ""))

    def _end(self, *, reset: bool, detail: str = "") -> None:
        """End both sockets, once. A remark says which side ended first, unless the tap itself does."""
        if self._over:
            return
        self._over = True
        if self._ended:
            self._remark_lost(self._ended[0], detail)
        if self._timer is not None:
            self._timer.cancel()
        for side in Side:
            if reset:
                self._abort(side)
            elif (transport := self._ends[side].transport) is not None:
                transport.close()
        self._listener.copies.remark(self._number, "closed")
        self._listener.forget(self)

    def _remark_lost(self, side: Side, detail: str = "") -> None:
        """Remark once that a side has ended the connection."""
        if not self._lost:
            self._lost = True
            self._listener.copies.remark(self._number, "lost", by=word(side), detail=detail)

    def _look(self, side: Side) -> None:
        """Remark the reset of a side from which nothing is read now, until it is read from again."""
        transport = self._ends[side].transport
        if self._over or self._lost or transport is None or not self._is_paused(side):
            return
        looks = select.poll()
        looks.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        if looks.poll(0):
            self._remark_lost(side)
        else:
            self._loop.call_later(LOOK_EVERY_S, self._look, side)

    def _abort(self, side: Side) -> None:
        transport = self._ends[side].transport
        if transport is None:
            return
        if (raw := transport.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()

    def reset(self) -> None:
        """End the connection at once, towards both sides."""
        self._end(reset=True)
