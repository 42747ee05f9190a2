"""Wake an I/O loop at a time, to some microseconds; epoll itself waits for whole milliseconds."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from pika.adapters.select_connection import IOLoop

from rabbitmq_resilience.history.history import now_us

#: Times within this interval share one wake-up, so that other work of the loop has its turn.
APART_US = 250

_C_LIBRARY = ctypes.CDLL(None, use_errno=True)
_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1


class Timer:
    """Call functions back, each once at its time (of the clock ``now_us``), in the order of times."""

    def __init__(self, loop: IOLoop) -> None:
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._rang_us = 0
        self._ringing = False
        self._clock = (_KernelsClock if hasattr(_C_LIBRARY, "timerfd_create") else _LoopsClock)(loop, self._ring)

    def call_at(self, at_us: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` at the time ``at_us``, or soon if that is past."""
        entry = (at_us, next(self._numbers), callback)
        heappush(self._waiting, entry)
        if self._waiting[0] is entry and not self._ringing:
            self._set()

    def _set(self) -> None:
        self._clock.ring_at(max(self._waiting[0][0], self._rang_us + APART_US))

    def _ring(self) -> None:
        self._rang_us = now_us()
        due = []
        while self._waiting and self._waiting[0][0] <= self._rang_us:
            due.append(heappop(self._waiting)[2])
        self._ringing = True
        try:
            for callback in due:
                callback()
        finally:
            self._ringing = False
        if self._waiting:
            self._set()


class _KernelsClock:
    """A timer of the kernel that is a file, see timerfd_create(2)."""

    def __init__(self, loop: IOLoop, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._fd = _C_LIBRARY.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "timerfd_create")
        loop.add_handler(self._fd, self._on_time, IOLoop.READ)

    def ring_at(self, at_us: int) -> None:
        """Ring once at this time, and not at the time that was set before."""
        seconds, us = divmod(max(at_us, 1), 1_000_000)
        _C_LIBRARY.timerfd_settime(self._fd, _ABSOLUTE, (ctypes.c_long * 4)(0, 0, seconds, us * 1000), None)

    def _on_time(self, fd: int, _events: int) -> None:
        try:
            os.read(fd, 8)
        except BlockingIOError:  # it was set again meanwhile
            return
        self._ring()


class _LoopsClock:
    """The loop's own timer, for systems on which it can wait for parts of milliseconds (kqueue)."""

    def __init__(self, loop: IOLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._set: object | None = None

    def ring_at(self, at_us: int) -> None:
        if self._set is not None:
            self._loop.remove_timeout(self._set)
        self._set = self._loop.call_later(max(0, at_us - now_us()) / 1e6, self._rung)

    def _rung(self) -> None:
        self._set = None
        self._ring()
