"""The life of one worker process: its connection, which is replaced as often as it is lost, and its orders.

A worker is told what to do on its standard input, in lines: ``vary 1234`` says when the load begins to vary (monotonic
us), ``stop`` lets it finish in good order. The end of that input lets it end at once; it comes also when the process
that started the worker dies, in whatever way.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pika import ConnectionParameters
from pika.adapters.select_connection import IOLoop

from reports.events import EventLog
from workloads.counters import Count, Counters
from workloads.load import Load
from workloads.wire import Connection

TICK_S = 0.01
#: A broker in trouble may accept a connection and then answer nothing.
SETUP_TIMEOUT_S = 8.0
CLOSE_TIMEOUT_S = 2.0
BACKOFF_S = (0.05, 2.0)


class Client(Protocol):
    """What a publisher and a consumer do with their connection."""

    def opened(self, connection: Connection, node: int) -> None:
        """A connection to the node of this index is open. Calls ``Session.ready`` once it is of use."""

    def lost(self) -> None:
        """The connection is gone, with all that was under way on it."""

    def tick(self) -> None:
        """Comes every ``TICK_S``."""

    def vary(self, begins_us: int) -> None:
        """Play the variable part of the load from that moment on, which may be long past."""

    def stop(self) -> None:
        """Finish in good order, then call ``Session.finish``."""

    def close(self) -> None:
        """Record what is left; the last call."""


class Session:
    """Keeps one client connected: to its home node first, and after a loss to its next place in turn."""

    def __init__(
        self, load: Load, folder: Path, *, worker: str, row: int, home: int, life: int, begins_after_s: float
    ) -> None:
        self._load = load
        self._begins_after_s = begins_after_s if life == 0 else 0.0
        self._worker = worker
        self._row = row
        self._addresses = load.addresses_of(worker)
        self._places = load.places(home)
        self._node = self._places[0]
        self._random = random.Random(f"{load.seed} {worker} {life}")  # noqa: S311
        self._failures = 0
        self._stopping = False
        self._connection: Connection | None = None
        self._setup_timer: object | None = None
        self._unfinished_order = b""
        self._client: Client
        self.loop = IOLoop()
        self.events = EventLog(folder / f"{worker}.jsonl")
        self.counters = Counters(folder, workers=load.publishers + load.consumers)

    def run(self, client: Client) -> None:
        """Serve the client until it is told to stop. Raises what its callbacks raised."""
        self._client = client
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # losses are events here
        self.record("started", detail=f"pid {os.getpid()}")
        self.loop.add_handler(sys.stdin.fileno(), self._on_order, IOLoop.READ)
        self.loop.call_later(self._begins_after_s, self._connect)
        self._tick()
        self.loop.start()
        client.close()
        self.count(Count.NODE, 0)
        self.record("stopped")

    def ready(self) -> None:
        """The client's connection is of use."""
        self._cancel_setup_timer()
        self._failures = 0
        self.count(Count.NODE, 1 + self._node)
        self.record("connected")

    def fail(self, reason: str) -> None:
        """Drop the connection; another one to the next node will follow."""
        if self._connection is not None and not self._stopping:
            self._connection.abort(reason)

    def finish(self) -> None:
        """Close the connection, then let ``run`` return."""
        if self._stopping:
            return
        self._stopping = True
        if self._connection is None or not self._connection.is_open:
            self.loop.stop()
            return
        self._connection.close()
        self.loop.call_later(CLOSE_TIMEOUT_S, self.loop.stop)

    def count(self, count: Count, value: int) -> None:
        self.counters.set(self._row, count, value)

    def add(self, count: Count, value: int) -> None:
        self.counters.add(self._row, count, value)

    def counted(self, count: Count) -> int:
        return self.counters.get(self._row, count)

    def record(self, event: str, *, detail: str = "") -> None:
        node = self._addresses[self._node].node
        self.events.record("worker", worker=self._worker, event=event, node=node, detail=detail)

    def _connect(self) -> None:
        if self._stopping:
            return
        address = self._addresses[self._node]
        parameters = ConnectionParameters(
            host=address.host,
            port=address.port,
            virtual_host=self._load.vhost,
            heartbeat=self._load.heartbeat_s,
            socket_timeout=2,
            stack_timeout=5,
            client_properties={"connection_name": self._worker},
        )
        self._connection = Connection(
            parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=lambda _, error: self._on_closed(error, opened=False),
            on_close_callback=lambda _, error: self._on_closed(error, opened=True),
            custom_ioloop=self.loop,
        )

    def _on_open(self, connection: Connection) -> None:
        connection.read_in_large_pieces()
        self._setup_timer = self.loop.call_later(SETUP_TIMEOUT_S, lambda: self.fail("the broker does not answer"))
        self._client.opened(connection, self._node)

    def _on_closed(self, error: Exception, *, opened: bool) -> None:
        if self._connection is not None and self._connection.failure is not None:
            raise self._connection.failure
        self._cancel_setup_timer()
        self._connection = None
        self.count(Count.NODE, 0)
        if self._stopping:
            self.loop.stop()
            return
        if opened:
            self.record("connection_lost", detail=str(error) or repr(error))
            self._client.lost()
        self._node = self._places[(self._places.index(self._node) + 1) % len(self._places)]
        self._failures += 1
        longest_s = min(BACKOFF_S[0] * 2**self._failures, BACKOFF_S[1])
        self.loop.call_later(self._random.uniform(BACKOFF_S[0], longest_s), self._connect)

    def _cancel_setup_timer(self) -> None:
        if self._setup_timer is not None:
            self.loop.remove_timeout(self._setup_timer)
            self._setup_timer = None

    def _tick(self) -> None:
        self._client.tick()
        self.loop.call_later(TICK_S, self._tick)

    def _on_order(self, fd: int, _events: int) -> None:
        data = os.read(fd, 4096)
        if not data:
            self.loop.remove_handler(fd)
            self.loop.stop()
            return
        *orders, self._unfinished_order = (self._unfinished_order + data).split(b"\n")
        for order in orders:
            self._obey(order.decode())

    def _obey(self, order: str) -> None:
        match order.split():
            case ["vary", begins_us]:
                self._client.vary(int(begins_us))
            case ["stop"]:
                self._client.stop()
            case _:
                raise ValueError(f"{order!r} is no order for a worker")


def run_worker(serve: Callable[[Path, int, int], None]) -> None:
    """The main function of a worker: its arguments are the folder, its index and which of its lives this is."""
    folder, index, life = sys.argv[1:]
    serve(Path(folder), int(index), int(life))
