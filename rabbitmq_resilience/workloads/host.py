"""One worker process: the clients of one role that share it, on one I/O loop, and what it is told to do.

A process gets its orders on its standard input, in lines: ``publish`` lets publishers, which have connected, begin to
publish; ``vary 1234`` says when the load begins to vary (monotonic us); ``consume`` lets those consumers connect that
wait for the drain; ``stop`` lets its clients finish in good order. The end of that input lets it end at once; it comes
also when the process that started it dies, in whatever way.
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

from rabbitmq_resilience.clusters.access import Access
from rabbitmq_resilience.record.event_log import EventLog
from rabbitmq_resilience.workloads.counters import Counters
from rabbitmq_resilience.workloads.load import Load, Process
from rabbitmq_resilience.workloads.timer import Timer

#: Of clients that must look at the time themselves.
TICK_S = 0.01
#: Of those that timers and what arrives tell what to do, for their record and their patience. A tick costs some 0.15 ms
#: of a processor.
RARE_TICK_S = 0.05
#: What a tick may take of a processor for each client, about; where many share a process, ticks come less often.
TICK_OF_EACH_S = 40e-6
#: A broker answers some first connections at a time sooner than all of them at once.
CONNECTING_MAX = 8


class Client(ABC):
    """What the process asks of each of its clients; what one does not have is not for it."""

    @property
    @abstractmethod
    def tick_s(self) -> float:
        """How often ``tick`` is to come: ``TICK_S`` or ``RARE_TICK_S``."""

    @abstractmethod
    def begin(self) -> None:
        """Connect, when it is time."""

    @abstractmethod
    def tick(self) -> None:
        """Comes as often as some client of the process needs, or less often where many share it."""

    def publish(self) -> None:  # noqa: B027 - not for every client
        """Begin to publish, if that is what it does: by now all clients of the load are connected."""

    def consume(self) -> None:  # noqa: B027 - not for every client
        """Connect now, if that is a consumer that waits for the drain."""

    def vary(self, begins_us: int) -> None:  # noqa: B027 - not for every client
        """Play the variable part of the load from that moment on, which may be long past."""

    @abstractmethod
    def stop(self) -> None:
        """Finish in good order, then call ``Host.finished``."""

    @abstractmethod
    def close(self) -> None:
        """Record what is left; the last call."""


class Turns:
    """Lets few begin at a time; each of the others begins when one of them is through."""

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
        """To be called once for each that has begun."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._free += 1


class Host:
    """``life``: which of the successive processes of this place it is, counted from 0."""

    def __init__(self, load: Load, folder: Path, *, process: Process, life: int) -> None:
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
        """Until all clients are finished, or nobody is there to give orders. Raises what their callbacks raised."""
        self._clients = clients
        self._serving = len(clients)
        self._tick_s = max(min(client.tick_s for client in clients), TICK_OF_EACH_S * len(clients))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # losses are events here
        self.loop.add_handler(sys.stdin.fileno(), self._on_order, IOLoop.READ)
        for client in clients:
            client.begin()
        self._tick()
        self.loop.start()
        for client in clients:
            client.close()

    def finished(self) -> None:
        """One client has nothing left to do."""
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
    """The main function of a process: its arguments are the folder, its name and which of its lives this is."""
    folder, name, life = sys.argv[1:]
    _allow_descriptors()
    serve(Path(folder), name, int(life))


def _allow_descriptors() -> None:
    """As many open files, and so connections, as the system lets this process have without asking."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
