"""Keep one client connected: replace its connection each time that it is lost."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Protocol

from pika import ConnectionParameters

from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.workload.client_host import ClientHost
from rabbitmq_resilience.workload.counters import Count
from rabbitmq_resilience.workload.load import Address, Load
from rabbitmq_resilience.workload.wire import Connection

#: A faulty broker may accept a connection and then not answer.
SETUP_TIMEOUT_S = 8.0
CLOSE_TIMEOUT_S = 2.0
BACKOFF_S = (0.05, 2.0)


def parameters(load: Load, address: Address, access: Access, *, name: str, heartbeat_s: int) -> ConnectionParameters:
    """Return the parameters of a connection to that address. Its timeouts, in seconds, end an unanswered attempt."""
    return ConnectionParameters(
        **access.parameters(address.endpoint),
        virtual_host=load.vhost,
        heartbeat=heartbeat_s,
        socket_timeout=2,
        stack_timeout=5,
        client_properties={"connection_name": name},
    )


class User(Protocol):
    """The user of the connection: a publisher or a consumer."""

    def opened(self, connection: Connection, node: int) -> None:
        """Set up an open connection to the node with this index, then call ``ClientSession.ready``."""

    def lost(self) -> None:
        """Give up the connection, with all that was under way on it."""


class ClientSession:
    """Keep one client connected: to its home node first, and after a loss to the next address in turn."""

    def __init__(self, host: ClientHost, *, worker: str, row: int, home: int, begins_after_s: float) -> None:
        load = host.load
        self._host = host
        self._begins_after_s = begins_after_s if host.life == 0 else 0.0
        self._worker = worker
        self._row = row
        self._addresses = load.addresses_of(worker)
        self._places = load.places(home)
        self._node = self._places[0]
        self._random = random.Random(f"{load.seed} {worker} {host.life}")  # noqa: S311
        self._failures = 0
        self._in_turn = False
        self._stopping = self._finished = False
        self._connection: Connection | None = None
        self._setup_timer: object | None = None
        self._user: User

    def begin(self, user: User) -> None:
        """Connect for this user, when its turn in the start of the load comes."""
        self._user = user
        self.record("started", detail=f"pid {os.getpid()}")
        self._host.loop.call_later(self._begins_after_s, lambda: self._host.connecting.enter(self._connect_first))

    def ready(self) -> None:
        """Count and record the connection as usable."""
        self._cancel_setup_timer()
        self._leave_turn()
        self._failures = 0
        self.count(Count.NODE, 1 + self._node)
        self.record("connected")

    def fail(self, reason: str) -> None:
        """Drop the connection; a connection to the next node follows."""
        if self._connection is not None and not self._stopping:
            self._connection.abort(reason)

    def finish(self, *, all_read: bool = False) -> None:
        """Close the connection, and report to the process that this client is done.

        ``all_read``: wait for the broker's answer, which shows that it has read all messages. There is no time limit;
        the parent may end the process.
        """
        if self._stopping:
            return
        self._stopping = True
        if self._connection is None or not self._connection.is_open:
            self._finish()
            return
        self._connection.close()
        if not all_read:
            self._host.loop.call_later(CLOSE_TIMEOUT_S, self._finish)

    def close(self) -> None:
        """Record the end of the client. This is the last call."""
        self.count(Count.NODE, 0)
        self.record("stopped")

    def call_at(self, at_us: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` at the time ``at_us`` (of the clock ``now_us``)."""
        self._host.timer.call_at(at_us, callback)

    def count(self, count: Count, value: int) -> None:
        self._host.counters.set(self._row, count, value)

    def add(self, count: Count, value: int) -> None:
        self._host.counters.add(self._row, count, value)

    def counted(self, count: Count) -> int:
        return self._host.counters.get(self._row, count)

    def record(self, event: str, *, detail: str = "") -> None:
        node = self._addresses[self._node].node
        self._host.events.record(
            "worker", worker=self._worker, event=event, node=node, detail=detail, life=self._host.life
        )

    def _connect_first(self) -> None:
        self._in_turn = True
        self._connect()

    def _connect(self) -> None:
        if self._stopping:
            self._leave_turn()
            return
        load, address = self._host.load, self._addresses[self._node]
        self._connection = Connection(
            parameters(load, address, self._host.access, name=self._worker, heartbeat_s=load.heartbeat_s),
            on_open_callback=self._on_open,
            on_open_error_callback=lambda _, error: self._on_closed(error, opened=False),
            on_close_callback=lambda _, error: self._on_closed(error, opened=True),
            custom_ioloop=self._host.loop,
        )

    def _on_open(self, connection: Connection) -> None:
        connection.read_in_large_pieces()
        self._setup_timer = self._host.loop.call_later(SETUP_TIMEOUT_S, lambda: self.fail("the broker does not answer"))
        announced = (connection.server_properties or {}).get("node")
        self._user.opened(connection, self._host.load.node(self._node, announced))

    def _on_closed(self, error: Exception, *, opened: bool) -> None:
        if self._connection is not None and self._connection.failure is not None:
            raise self._connection.failure
        self._cancel_setup_timer()
        self._leave_turn()
        self._connection = None
        self.count(Count.NODE, 0)
        if self._stopping:
            self._finish()
            return
        if opened:
            self.record("connection_lost", detail=str(error) or repr(error))
            self._user.lost()
        self._node = self._places[(self._places.index(self._node) + 1) % len(self._places)]
        self._failures += 1
        longest_s = min(BACKOFF_S[0] * 2**self._failures, BACKOFF_S[1])
        self._host.loop.call_later(self._random.uniform(BACKOFF_S[0], longest_s), self._connect)

    def _leave_turn(self) -> None:
        """Leave the turn of the first attempt. Later attempts take none, so that a faulty node holds up no others."""
        if self._in_turn:
            self._in_turn = False
            self._host.connecting.leave()

    def _finish(self) -> None:
        if not self._finished:
            self._finished = True
            self._host.finished()

    def _cancel_setup_timer(self) -> None:
        if self._setup_timer is not None:
            self._host.loop.remove_timeout(self._setup_timer)
            self._setup_timer = None
