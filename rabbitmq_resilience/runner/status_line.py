"""Update the live line during a scenario, from a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TextIO

from rabbitmq_resilience.nemesis.fault import ActiveLoad
from rabbitmq_resilience.report.terminal import LiveLine, Status
from rabbitmq_resilience.sut.observer import Observer

EVERY_S = 0.5
_ENDED = ("healed", "heal_unproven")


class StatusLine:
    """The status on the live line. The runner sets the phase, and the observer and load to read numbers from."""

    def __init__(self, line: LiveLine, *, nodes: int) -> None:
        self._line = line
        self._status = Status(phase="forming", elapsed_s=0.0, nodes=nodes)
        self._last = self._status
        self._begun_s = time.monotonic()
        self._sources: tuple[Observer, ActiveLoad] | None = None
        self._faults: dict[int, str] = {}
        self._notes: deque[str] = deque()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._show, name="live-line", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    @contextmanager
    def watching(self, observer: Observer, load: ActiveLoad) -> Iterator[None]:
        """Show numbers of the observer and the load during the block. Afterwards, the last numbers stay."""
        with self._lock:
            self._sources = (observer, load)
        try:
            yield
        finally:
            with self._lock:
                self._sources = None

    def phase(self, name: str) -> None:
        self._status = replace(self._status, phase=name)

    def note(self, text: str) -> None:
        """Show a sentence on a line of its own, from any thread."""
        self._notes.append(text)

    def recording(self, record: Callable[..., object]) -> Callable[..., object]:
        """Return a function that calls ``record``, and also shows the active faults."""

        def recorded(kind: str, **fields: Any) -> object:
            if kind == "fault" and fields["state"] == "injecting":
                self._faults = {**self._faults, fields["step"]: fields["fault"]}
            elif kind == "fault" and fields["state"] in _ENDED:
                self._faults = {step: name for step, name in self._faults.items() if step != fields["step"]}
            return record(kind, **fields)

        return recorded

    def _show(self) -> None:
        while not self._closed.wait(EVERY_S):
            with self._lock:
                status = self._now()
            while self._notes:
                self._line.note(self._notes.popleft())
            self._line.show(status)

    def _now(self) -> Status:
        status = replace(self._status, elapsed_s=time.monotonic() - self._begun_s, faults=tuple(self._faults.values()))
        if self._sources is None:
            return replace(self._last, phase=status.phase, elapsed_s=status.elapsed_s, faults=status.faults)
        observer, load = self._sources
        progress = load.progress()
        self._last = replace(
            status,
            sent=progress.published,
            confirmed=progress.confirmed,
            received=progress.received,
            depth=observer.depth(),
            nodes_up=sum(state == "up" for state in observer.states.values()),
        )
        return self._last


@contextmanager
def status_line(stream: TextIO, *, nodes: int) -> Iterator[StatusLine]:
    with LiveLine(stream) as line:
        live = StatusLine(line, nodes=nodes)
        live.start()
        try:
            yield live
        finally:
            live.close()
