"""Start, watch, kill and end the worker processes of a load from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rabbitmq_resilience.history.event_log import EventLog
from rabbitmq_resilience.tools.locations import IMPORTED_FROM
from rabbitmq_resilience.workload.load import WorkerClients

#: A process with thousands of connections needs a second of CPU time to end. A full machine gives that in ten seconds.
END_TIMEOUT_S = 30.0


class WorkloadError(Exception):
    """A worker ended by itself, or did not follow an order; the text names the worker and its log."""


class LoadNotBegunError(WorkloadError):
    """Not all clients connected in time, or no messages arrived; the text says how many did."""


class Worker:
    """The place of one worker process; after a restart the next process takes it."""

    def __init__(self, place: WorkerClients, folder: Path, environ: Mapping[str, str]) -> None:
        """``environ``: additions to the environment of its processes. They are written to no file."""
        self.name = place.name
        self.clients = [f"{place.role}-{client}" for client in place.clients]
        self._module = f"rabbitmq_resilience.workload.{place.role}"
        self._folder = folder
        self._environ = environ
        self._lives = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._publishes = False
        self._consumes = False
        self._varies_from_us: int | None = None
        self.expected_to_run = False

    @property
    def log(self) -> Path:
        return self._folder / f"{self.name}.log"

    @property
    def events_file(self) -> Path:
        return self._folder / f"{self.name}.jsonl"

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def pid(self) -> int | None:
        return None if self.ended or self._process is None else self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Return the exit status of the last process; None while a process exists, and before the first one."""
        return None if self._process is None else self._process.poll()

    @property
    def failed(self) -> bool:
        """Return whether the process ended without an order, or with an error status."""
        if self._process is None or self._killed or not self.ended:
            return False
        return self.expected_to_run or self._process.returncode != 0

    def start(self) -> None:
        if not self.ended:
            raise WorkloadError(f"{self.name} is already running")
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()  # of an incarnation that ended by itself
        command = [sys.executable, "-m", self._module, str(self._folder), self.name, str(self._lives)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=IMPORTED_FROM,
                env={**os.environ, **self._environ},
                bufsize=0,  # an order that was not taken must not wait in a buffer
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C in a terminal goes to the parent only
            )
        self._lives += 1
        self._killed = False
        self.expected_to_run = True
        if self._publishes:
            self.publish()
        if self._consumes:
            self.consume()
        if self._varies_from_us is not None:
            self.vary(self._varies_from_us)

    def publish(self) -> None:
        """Let its publishers begin, in this incarnation and the next ones."""
        self._publishes = True
        self._order("publish")

    def consume(self) -> None:
        """Let its consumers that wait for the drain connect, in this incarnation and the next ones."""
        self._consumes = True
        self._order("consume")

    def vary(self, begins_us: int) -> None:
        """Let its load vary from ``begins_us`` on, in this incarnation and the next ones."""
        self._varies_from_us = begins_us
        self._order(f"vary {begins_us}")

    def finish(self) -> None:
        """Order the process to end cleanly."""
        self.expected_to_run = False
        self._order("stop")

    def _order(self, text: str) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):  # the process ended first
                self._process.stdin.write(f"{text}\n".encode())

    def end(self) -> None:
        """Order the process to end now, and kill it if it does not."""
        self.expected_to_run = False
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._kill("hung", detail=f"it did not end within {END_TIMEOUT_S:g} s")

    def kill(self) -> None:
        """Kill the process and wait for its end. Raise WorkloadError if it serves several clients."""
        if len(self.clients) > 1:
            raise WorkloadError(f"{self.name} is the process of {len(self.clients)} clients; none can be killed alone")
        self._kill("killed")

    def _kill(self, event: str, *, detail: str = "") -> None:
        self.expected_to_run = False
        if self._process is None:
            return
        self._killed = True
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        with EventLog(self.events_file) as events:
            for client in self.clients:
                events.record("worker", worker=client, event=event, detail=detail, life=self._lives - 1)
