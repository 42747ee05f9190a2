"""Starts the worker processes of a workload, watches them, and ends them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from reports.events import EventLog
from reports.history import now_us
from topologies.cluster import Cluster
from topologies.waiting import WaitTimeout, wait_until
from workloads.counters import Count, Counters
from workloads.drain import Depths, DrainResult, Tally, drain
from workloads.load import Address, Load, worker_name
from workloads.settlement import settle
from workloads.spec import Workload

Role = Literal["publisher", "consumer"]

END_TIMEOUT_S = 5.0
_ROOT = Path(__file__).resolve().parent.parent


class WorkloadError(Exception):
    """A worker ended by itself, or did not do what it was asked; the text names it and its log."""


@dataclass(frozen=True)
class Progress:
    """Sums over all workers. ``published`` may have been sent; ``received`` counts duplicates too."""

    published: int
    confirmed: int
    refused: int
    unknown: int
    received: int
    publishers_connected: int
    consumers_connected: int
    publishers_blocked: int


class Worker:
    """One worker's place, which successive processes fill."""

    def __init__(self, role: Role, index: int, folder: Path) -> None:
        self.name = f"{role}-{index}"
        self._module = f"workloads.{role}"
        self._index = index
        self._folder = folder
        self._lives = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
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
    def failed(self) -> bool:
        """It ended although nobody had asked for it, or not in good order."""
        if self._process is None or self._killed or not self.ended:
            return False
        return self.expected_to_run or self._process.returncode != 0

    def start(self) -> None:
        if not self.ended:
            raise WorkloadError(f"{self.name} is already running")
        command = [sys.executable, "-m", self._module, str(self._folder), str(self._index), str(self._lives)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=_ROOT,
                bufsize=0,  # an order that was not taken must not wait in a buffer
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C in a terminal goes to the parent only
            )
        self._lives += 1
        self._killed = False
        self.expected_to_run = True
        if self._varies_from_us is not None:
            self.vary(self._varies_from_us)

    def vary(self, begins_us: int) -> None:
        """Let its load vary from that moment on, in this life and the next ones."""
        self._varies_from_us = begins_us
        self._order(f"vary {begins_us}")

    def finish(self) -> None:
        """Ask it to end in good order."""
        self.expected_to_run = False
        self._order("stop")

    def _order(self, text: str) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):  # it ended first
                self._process.stdin.write(f"{text}\n".encode())

    def end(self) -> None:
        """Ask it to end now, and see to it."""
        self.expected_to_run = False
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.expected_to_run = False
        if self._process is None:
            return
        self._killed = True
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        with EventLog(self.events_file) as events:
            events.record("worker", worker=self.name, event="killed", node="", detail="")


class RunningWorkload:
    """The workers of one run. On exit all are ended and the history is completed."""

    def __init__(self, load: Load, folder: Path) -> None:
        self.load = load
        self.folder = folder
        self.publishers = [Worker("publisher", i, folder) for i in range(load.publishers)]
        self.consumers = [Worker("consumer", i, folder) for i in range(load.consumers)]
        self._counters = Counters(folder, workers=load.publishers + load.consumers, create=True)
        self._tally = Tally(folder, publishers=load.publishers)
        self._stopped = False

    @property
    def workers(self) -> list[Worker]:
        return self.publishers + self.consumers

    def worker(self, name: str) -> Worker:
        """The worker of that name, such as ``publisher-0``. Raises KeyError."""
        return {worker.name: worker for worker in self.workers}[name]

    def progress(self) -> Progress:
        publishers = range(self.load.publishers)
        consumers = range(self.load.publishers, self.load.publishers + self.load.consumers)

        def total(rows: Iterable[int], count: Count) -> int:
            return sum(self._counters.get(row, count) for row in rows)

        def positive(rows: Iterable[int], count: Count) -> int:
            return sum(self._counters.get(row, count) > 0 for row in rows)

        return Progress(
            published=total(publishers, Count.SENT),
            confirmed=total(publishers, Count.CONFIRMED),
            refused=total(publishers, Count.REFUSED),
            unknown=total(publishers, Count.UNKNOWN),
            received=total(consumers, Count.RECEIVED),
            publishers_connected=positive(publishers, Count.NODE),
            consumers_connected=positive(consumers, Count.NODE),
            publishers_blocked=positive(publishers, Count.BLOCKED),
        )

    def confirmed_by_publisher(self) -> list[int]:
        return [self._counters.get(row, Count.CONFIRMED) for row in range(self.load.publishers)]

    def received_by_consumer(self) -> list[int]:
        first = self.load.publishers
        return [self._counters.get(first + i, Count.RECEIVED) for i in range(self.load.consumers)]

    def queues_of_consumer(self, index: int) -> list[str]:
        return [self.load.queues[queue] for queue in self.load.consumer_queues(index)]

    def check(self) -> None:
        """Raise ``WorkloadError`` if a worker ended unasked, or not in good order. Good after ``stop``, too."""
        for worker in self.workers:
            if worker.failed:
                last_lines = "\n".join(worker.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
                raise WorkloadError(f"{worker.name} ended by itself; the end of {worker.log}:\n{last_lines}")

    def await_connected(self, *, timeout_s: float) -> None:
        """Wait until every worker is connected to some node."""

        def all_connected() -> bool:
            self.check()
            seen = self.progress()
            return (seen.publishers_connected, seen.consumers_connected) == (len(self.publishers), len(self.consumers))

        wait_until(all_connected, timeout_s=timeout_s, what="all publishers and consumers to connect", poll_s=0.05)

    def begin_variation(self) -> int:
        """Let the variable parts of the load begin now; the moment, monotonic us."""
        begins_us = now_us()
        for worker in self.workers:
            worker.vary(begins_us)
        return begins_us

    def stop_publishers(self, *, timeout_s: float) -> bool:
        """Stop sending, and wait for outstanding confirms. False if some did not come: these are UNKNOWN."""
        for publisher in self.publishers:
            publisher.finish()
        try:
            wait_until(lambda: all(p.ended for p in self.publishers), timeout_s=timeout_s, what="the last confirms")
        except WaitTimeout:
            return False
        finally:
            _end(self.publishers)
        return True

    def drain(self, depths: Depths, *, idle_s: float, timeout_s: float) -> DrainResult:
        """Wait for the consumers to receive what is confirmed; call it after ``stop_publishers``."""
        return drain(self._tally, depths, idle_s=idle_s, timeout_s=timeout_s)

    def stop(self) -> None:
        """End all workers; consumers acknowledge what they have recorded. Then complete the history."""
        if self._stopped:
            return
        self._stopped = True
        for worker in self.workers:
            worker.finish()
        try:
            wait_until(lambda: all(w.ended for w in self.workers), timeout_s=END_TIMEOUT_S, what="all workers to end")
        except WaitTimeout:
            pass  # they are ended with less ado
        finally:
            _end(self.workers)
        settle(self.folder)
        self._counters.close()

    def kill_publisher(self, index: int) -> None:
        """SIGKILL. Restart it with ``restart_publisher``: it goes on with its next sequence."""
        self.publishers[index].kill()

    def restart_publisher(self, index: int) -> None:
        self.publishers[index].start()

    def kill_consumer(self, index: int) -> None:
        self.consumers[index].kill()

    def restart_consumer(self, index: int) -> None:
        self.consumers[index].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _end(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.end()


def addresses(cluster: Cluster, *, client: str | None = None) -> tuple[Address, ...]:
    """Where the nodes of a cluster serve AMQP, in the topology's order; for a client, on its own links."""
    port = cluster.amqp_port
    return tuple(Address(node, "127.0.0.1", port(node, client=client), zone) for node, zone in cluster.topology.nodes)


def detours(cluster: Cluster) -> dict[str, tuple[Address, ...]]:
    """The addresses of the workers whose links carry proxies."""
    clients = {link.client for link in cluster.links.proxied} - {None}
    return {worker_name(client): addresses(cluster, client=client) for client in clients if client is not None}


def start(
    workload: Workload,
    *,
    addresses: Sequence[Address],
    detours: Mapping[str, tuple[Address, ...]] | None = None,
    queues: Sequence[str],
    vhost: str,
    run: int,
    seed: int,
    folder: Path,
) -> RunningWorkload:
    """Start all workers and return at once; ``queues`` are declared already, in index order.

    Publisher and consumer i begin at node i modulo their number. ``detours``: see ``Load``. ``run`` is any number that
    no other run uses; all that is needed to read the history again is left in ``folder``, which must be empty.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    shared = workload.model_dump(include=_FROM_WORKLOAD)
    load = Load(
        run=run,
        seed=seed,
        vhost=vhost,
        addresses=tuple(addresses),
        detours=dict(detours or {}),
        queues=tuple(queues),
        **shared,
    )
    load.save(folder)
    running = RunningWorkload(load, folder)
    try:
        for worker in running.workers:
            worker.start()
    except BaseException:
        running.stop()
        raise
    return running


_FROM_WORKLOAD = set(Load.__dataclass_fields__) & set(Workload.model_fields) - {"queues"}
