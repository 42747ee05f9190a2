"""Keep connections that only send heartbeats, thousands in a process, and record how many are open."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from rabbitmq_resilience.workload.client_host import CONNECTING_MAX, RARE_TICK_S, Client, ClientHost, Turns, run_worker
from rabbitmq_resilience.workload.client_session import BACKOFF_S, parameters
from rabbitmq_resilience.workload.load import Load, WorkerClients
from rabbitmq_resilience.workload.wire import Connection

RECORD_EVERY_S = 1.0


class IdleConnections(Client):
    """The idle connections of one process, which are its only client.

    ``number`` is the number of this process among the processes of idle connections. Process n of N has the connections
    n, n + N, and so on.
    """

    tick_s = RARE_TICK_S

    def __init__(self, host: ClientHost, *, number: int) -> None:
        load = host.load
        self.host = host
        self.turns = [Turns(CONNECTING_MAX) for _ in load.addresses]  # a silent address holds up no other
        self.stopping = False
        processes = sum(process.role == "idle" for process in load.background())
        self._name = f"idle-{number}"
        self._all = [_Idle(self, index) for index in range(number, load.idle_connections, processes)]
        self._open = self._lost = 0
        self._recorded: tuple[int, int] | None = None
        self._recorded_s = 0.0

    def begin(self) -> None:
        for one in self._all:
            one.connect()

    def tick(self) -> None:
        now_s = time.monotonic()
        if now_s - self._recorded_s >= RECORD_EVERY_S:
            self._recorded_s = now_s
            self._record()

    def stop(self) -> None:
        """Finish without closing: closing thousands of connections at a busy broker would take too long."""
        self.stopping = True
        self.host.finished()

    def close(self) -> None:
        self._record()

    def opened(self) -> None:
        self._open += 1

    def closed(self) -> None:
        self._open -= 1
        self._lost += not self.stopping

    def _record(self) -> None:
        now = self._open, self._lost
        if now != self._recorded:
            self.host.events.record(
                "idle", worker=self._name, connected=self._open, wanted=len(self._all), lost=self._lost
            )
            self._lost = 0
            self._recorded = self._open, 0


class _Idle:
    """One idle connection. After each loss, the next one goes to the next address in turn."""

    def __init__(self, owner: IdleConnections, index: int) -> None:
        self._all = owner
        self._load = owner.host.load
        self._index = index
        self._places = self._load.places(index)
        self._tried = 0
        self._failures = 0
        self._connection: Connection | None = None

    @property
    def _place(self) -> int:
        return self._places[self._tried % len(self._places)]

    def connect(self) -> None:
        if not self._all.stopping:
            self._all.turns[self._place].enter(self._connect)

    def _connect(self) -> None:
        address, heartbeat_s = self._load.addresses[self._place], self._load.idle_heartbeat_s
        access, name = self._all.host.access, f"idle-connection-{self._index}"
        self._connection = Connection(
            parameters(self._load, address, access, name=name, heartbeat_s=heartbeat_s),
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_error,
            on_close_callback=self._on_close,
            custom_ioloop=self._all.host.loop,
        )

    def _on_open(self, _connection: Connection) -> None:
        self._failures = 0
        self._all.opened()
        self._all.turns[self._place].leave()

    def _on_error(self, _connection: Connection, _error: Exception) -> None:
        self._all.turns[self._place].leave()
        self._again()

    def _on_close(self, _connection: Connection, _error: Exception) -> None:
        self._all.closed()
        self._again()

    def _again(self) -> None:
        self._connection = None
        self._tried += 1
        self._failures += 1
        longest_s = min(BACKOFF_S[0] * 2**self._failures, BACKOFF_S[1])
        self._all.host.loop.call_later(random.uniform(BACKOFF_S[0], longest_s), self.connect)  # noqa: S311


def connected_now(folder: Path, process: WorkerClients) -> int:
    """Return how many idle connections of the process are open, by the last event in its record."""
    try:
        *_, last, _ = (folder / f"{process.name}.jsonl").read_bytes().split(b"\n")
    except (FileNotFoundError, ValueError):
        return 0
    return int(json.loads(last)["connected"])


def _serve(folder: Path, name: str, life: int) -> None:
    number = int(name.rpartition("-")[2])
    host = ClientHost(Load.read(folder), folder, process=WorkerClients("idle", (number,)), life=life)
    host.serve([IdleConnections(host, number=number)])


if __name__ == "__main__":
    run_worker(_serve)
