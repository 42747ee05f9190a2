"""Run one worker process: the clients of one role that share it, on one I/O loop, and the orders to it.

A process reads its orders from its standard input, one a line. ``publish`` lets connected publishers begin to publish.
``vary 1234`` says when the load begins to vary (monotonic us). ``consume`` lets those consumers connect that wait for
the drain. ``stop`` lets the clients finish cleanly. At the end of its input the process ends at once; the input also
ends when the process that started it dies, in any way.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from pika.adapters.select_connection import IOLoop

from rabbitmq_resilience.history.event_log import EventLog
from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.workload.counters import Counters
from rabbitmq_resilience.workload.load import Load, WorkerClients
from rabbitmq_resilience.workload.timer import Timer

#: The tick of clients that must look at the time themselves.
TICK_S = 0.01
#: The tick of clients that timers and arriving data drive. They need it for their record and their time limits. A tick
#: costs about 0.15 ms of a processor.
RARE_TICK_S = 0.05
#: About how much processor time a client's tick may take. If many clients share a process, ticks come less often.
TICK_OF_EACH_S = 40e-6
#: How many first connections are opened at a time. A broker answers a few sooner than all at once.
CONNECTING_MAX = 8


class Client(ABC):
    """The interface of a client for its process. A method that a client does not define does nothing."""

    @property
    @abstractmethod
    def tick_s(self) -> float:
        """Return the time between two calls of ``tick``: ``TICK_S`` or ``RARE_TICK_S``."""

    @abstractmethod
    def begin(self) -> None:
        """Connect, when the client's turn in the start of the load comes."""

    @abstractmethod
    def tick(self) -> None:
        """Do periodic work. Calls come as often as any client of the process needs, less often if many share it."""

    def publish(self) -> None:  # noqa: B027 - not for every client
        """Begin to publish, if the client is a publisher: by now all clients of the load are connected."""

    def consume(self) -> None:  # noqa: B027 - not for every client
        """Connect now, if the client is a consumer that waits for the drain."""

    def vary(self, begins_us: int) -> None:  # noqa: B027 - not for every client
        """Play the variable part of the load from ``begins_us`` on, which may be long past."""

    @abstractmethod
    def stop(self) -> None:
        """Finish cleanly, then call ``ClientHost.finished``."""

    @abstractmethod
    def close(self) -> None:
        """Record what is left. This is the last call."""


class Turns:
    """Limits how many begin at a time; each of the others begins when one of them leaves."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: deque[Callable[[], None]] = deque()

    def enter(self, begin: Callable[[], None]) -> None:
        """Call ``begin``, now or later."""
        if self._free:
            self._free -= 1
            begin()
        else:
            self._waiting.append(begin)

    def leave(self) -> None:
        """Leave the turn. Call this once for each ``begin`` that was called."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._free += 1


class ClientHost:
    """The host of the clients in a worker process. ``life`` is the incarnation of this process, from 0."""

    def __init__(self, load: Load, folder: Path, *, process: WorkerClients, life: int) -> None:
        self.load = load
        self.life = life
        self.access = Access.of_this_process()
        self.loop = IOLoop()
        self.timer = Timer(self.loop)
        self.events = EventLog(folder / f"{process.name}.jsonl")
        self.counters = Counters(folder, workers=load.publishers + load.consumers)
        self.connecting = Turns(CONNECTING_MAX)
        self._serving = 0
        self._clients: Sequence[Client] = ()
        self._unfinished_order = b""

    def serve(self, clients: Sequence[Client]) -> None:
        """Run the clients until all are finished, or the standard input ends. Raise what their callbacks raise."""
        self._clients = clients
        self._serving = len(clients)
        self._tick_s = max(min(client.tick_s for client in clients), TICK_OF_EACH_S * len(clients))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # lost connections are recorded as events
        self.loop.add_handler(sys.stdin.fileno(), self._on_order, IOLoop.READ)
        for client in clients:
            client.begin()
        self._tick()
        self.loop.start()
        for client in clients:
            client.close()

    def finished(self) -> None:
        """Count one client as finished; with the last one, end the loop."""
        self._serving -= 1
        if not self._serving:
            self.loop.stop()

    def _tick(self) -> None:
        for client in self._clients:
            client.tick()
        self.loop.call_later(self._tick_s, self._tick)

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
            case ["publish"]:
                for client in self._clients:
                    client.publish()
            case ["consume"]:
                for client in self._clients:
                    client.consume()
            case ["vary", begins_us]:
                for client in self._clients:
                    client.vary(int(begins_us))
            case ["stop"]:
                for client in self._clients:
                    client.stop()
            case _:
                raise ValueError(f"{order!r} is no order for a worker")


def run_worker(serve: Callable[[Path, str, int], None]) -> None:
    """Be the main function of a process; its arguments are the folder, its name and its incarnation."""
    folder, name, life = sys.argv[1:]
    _allow_descriptors()
    serve(Path(folder), name, int(life))


def _allow_descriptors() -> None:
    """Raise the limit of open files, and so of connections, to the most that the system allows this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
