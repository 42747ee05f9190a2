"""Start the worker processes of a workload, watch them, and end them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rabbitmq_resilience.history.dead_letter_routes import DeadLetterRoutes
from rabbitmq_resilience.history.event_log import read_events
from rabbitmq_resilience.history.events import WorkerEvent
from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.sut.last_words import cause_of
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until
from rabbitmq_resilience.workload.busy import BusySince
from rabbitmq_resilience.workload.counters import Count, Counters
from rabbitmq_resilience.workload.drain import Depths, DrainResult, Tally, drain
from rabbitmq_resilience.workload.exchanges import rebindings
from rabbitmq_resilience.workload.idle import connected_now
from rabbitmq_resilience.workload.load import ROLES, Address, Load, grouped
from rabbitmq_resilience.workload.matching import DEFAULT_EXCHANGE
from rabbitmq_resilience.workload.routing import PublishArguments
from rabbitmq_resilience.workload.settlement import settle
from rabbitmq_resilience.workload.worker import LoadNotBegunError, Worker, WorkloadError
from rabbitmq_resilience.workload.workload_model import Workload

#: Even a busy machine opens this many idle connections a second.
IDLE_CONNECT_PER_S_MIN = 20
#: After this time, confirms that publishers still wait for do not come.
_FINISH_WITHIN_S = 5.0


@dataclass(frozen=True)
class Progress:
    """Sum over all workers. ``published`` messages may have been sent; ``received`` also counts duplicates."""

    published: int
    confirmed: int
    refused: int
    unknown: int
    received: int
    publishers_connected: int
    consumers_connected: int
    publishers_blocked: int


class RunningWorkload(Closing):
    """The workers of one run. Until it is closed, other threads may read their progress. ``close`` ends all workers
    and completes the history."""

    def __init__(self, load: Load, folder: Path, routes: Routes | None = None, access: Access | None = None) -> None:
        """``routes``: the queues that messages of each turn go to; by default each turn has its own queue."""
        self.load = load
        self.folder = folder
        environ = (access or Access()).environ()
        self.publishers = [Worker(process, folder, environ) for process in load.processes("publisher")]
        self.consumers = [Worker(process, folder, environ) for process in load.processes("consumer")]
        self.background = [Worker(process, folder, environ) for process in load.background()]
        self._counters = Counters(folder, workers=load.publishers + load.consumers, create=True)
        routes = routes or Routes.plain(len(load.queues))
        routes.save(folder)
        letters = DeadLetterRoutes(load.dead_letter_queues, load.reject_one_in)
        self._tally = Tally(folder, publishers=load.publishers, routes=routes, letters=letters)
        self._stopped = False
        self._cut_off = False  # publishers were ended before the last reads or confirms
        self._to_start: list[Worker] = []
        #: A further check for each ``check``; it raises an error that must end the run.
        self.also_check: Callable[[], None] = lambda: None

    @property
    def vhost(self) -> str:
        return self.load.vhost

    @property
    def early_consumers(self) -> frozenset[int]:
        """Return the indexes of the consumers that connect before the drain."""
        return frozenset(self.load.early_consumers)

    @property
    def idle_connections(self) -> int:
        return self.load.idle_connections

    @property
    def workers(self) -> list[Worker]:
        return self.publishers + self.consumers + self.background

    def worker(self, name: str) -> Worker:
        """Return the process of the client with that name, such as ``publisher-0``. Raise KeyError if there is none."""
        return {client: worker for worker in self.workers for client in worker.clients}[name]

    def client_events(self, name: str) -> list[WorkerEvent]:
        """Return the events that the client has recorded so far."""
        events = read_events(self.worker(name).events_file)
        return [event for event in events if isinstance(event, WorkerEvent) and event.worker == name]

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
            received=total(consumers, Count.RECORDED),
            publishers_connected=positive(publishers, Count.NODE),
            consumers_connected=positive(consumers, Count.NODE),
            publishers_blocked=positive(publishers, Count.BLOCKED),
        )

    def idle_missing(self) -> int:
        """Return how many idle connections are not open."""
        there = (connected_now(self.folder, each) for each in self.load.background() if each.role == "idle")
        return self.load.idle_connections - sum(there)

    def confirmed_by_publisher(self) -> list[int]:
        return [self._counters.get(row, Count.CONFIRMED) for row in range(self.load.publishers)]

    def received_by_consumer(self) -> list[int]:
        first = self.load.publishers
        return [self._counters.get(first + i, Count.RECORDED) for i in range(self.load.consumers)]

    def queues_of_consumer(self, index: int) -> list[str]:
        return [self.load.queues[queue] for queue in self.load.consumer_queues(index)]

    def check(self) -> None:
        """Raise ``WorkloadError`` if a worker ended by itself or with an error, and what ``also_check`` raises. Works
        after ``stop``, too."""
        self.also_check()
        for worker in self.workers:
            if worker.failed:
                last_lines = "\n".join(worker.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
                cause = cause_of(worker.exit_status or 0, worker.log)
                raise WorkloadError(f"{worker.name} ended by itself{cause}; the end of {worker.log}:\n{last_lines}")

    def begin(self) -> None:
        """Start all workers, or only the idle connections if there are any. Then ``await_connected`` starts the others
        once these are open: brokers that are busy with messages take new connections slowly."""
        idle = [worker for worker in self.background if worker.name.startswith("idle")]
        for worker in idle or self.workers:
            worker.start()
        self._to_start = [worker for worker in self.workers if worker not in idle] if idle else []

    def await_connected(self, *, timeout_s: float) -> None:
        """Wait until every client that connects before the drain is connected. Idle connections get more time. Raise
        LoadNotBegunError if some are not connected in time."""
        busy = BusySince()
        try:
            self._await_connected(timeout_s=timeout_s)
        except WaitTimeout as error:
            seen = self.progress()
            there = self.load.idle_connections - self.idle_missing() + seen.publishers_connected
            there += seen.consumers_connected
            whole = self.load.idle_connections + self.load.publishers + len(self.load.early_consumers)
            raise LoadNotBegunError(
                f"{there:,} of {whole:,} clients were connected after {error.timeout_s:.0f} s, in which "
                f"{busy.ratio:.0%} of this machine was in use; take fewer clients, a larger machine, or more time "
                "(workload.start_spread_s)"
            ) from error

    def publish(self) -> None:
        """Let publishers begin to publish."""
        for worker in self.publishers:
            worker.publish()

    def _await_connected(self, *, timeout_s: float) -> None:

        def idle_connected() -> bool:
            self.check()
            return not self.idle_missing()

        def all_connected() -> bool:
            seen = self.progress()
            connected = seen.publishers_connected, seen.consumers_connected
            return idle_connected() and connected == (self.load.publishers, len(self.load.early_consumers))

        idle_s = self.load.idle_connections / IDLE_CONNECT_PER_S_MIN
        if self._to_start:
            wait_until(idle_connected, timeout_s=timeout_s + idle_s, what="all idle connections", poll_s=0.05)
        while self._to_start:
            self._to_start.pop(0).start()
        what = "all publishers and consumers to connect"
        wait_until(all_connected, timeout_s=timeout_s + idle_s, what=what, poll_s=0.05)

    def begin_variation(self) -> int:
        """Let the variable parts of the load begin now, and return the time, in monotonic us."""
        begins_us = now_us()
        for worker in self.workers:
            worker.vary(begins_us)
        return begins_us

    def stop_publishers(self, *, timeout_s: float) -> bool:
        """Stop sending and wait for outstanding confirms, or without confirms until brokers have read all messages.
        Return False if time ran out: unconfirmed messages are UNKNOWN then. Without confirms, see ``drain``."""
        for publisher in self.publishers:
            publisher.finish()
        try:
            wait_until(lambda: all(p.ended for p in self.publishers), timeout_s=timeout_s, what="the last confirms")
        except WaitTimeout:
            self._cut_off = True
        finally:
            _end(self.publishers)
        return not self._cut_off

    def drain(self, depths: Depths, *, idle_s: float, timeout_s: float) -> DrainResult:
        """Let waiting consumers connect, and wait until consumers have received all confirmed messages. Call this after
        ``stop_publishers``. If publishers without confirms were ended with unsent messages, these are not lost by a
        broker: then the drain is complete only if every message was received."""
        for consumer in self.consumers:
            consumer.consume()
        result = drain(self._tally, depths, idle_s=idle_s, timeout_s=timeout_s)
        if not (self._cut_off and self.load.confirms != "awaited" and result.unconsumed):
            return result
        detail = f"publishers were ended before brokers had read all their messages; {result.detail}"
        return replace(result, complete=False, detail=detail)

    def stop(self) -> None:
        """End all workers, then complete the history. Consumers first acknowledge all recorded messages."""
        if self._stopped:
            return
        self._stopped = True
        with ExitStack() as ended:
            ended.callback(settle, self.folder)
            ended.callback(_end, self.workers)
            for worker in self.workers:
                worker.finish()
            with suppress(WaitTimeout):  # ``_end`` ends them without asking
                wait_until(
                    lambda: all(w.ended for w in self.workers), timeout_s=_FINISH_WITHIN_S, what="all workers to end"
                )

    def close(self) -> None:
        try:
            self.stop()
        finally:
            self._counters.close()


def _end(workers: Sequence[Worker]) -> None:
    """End each worker, even if ending another one fails."""
    with ExitStack() as each:
        for worker in workers:
            each.callback(worker.end)


def start(
    workload: Workload,
    *,
    addresses: Sequence[Address],
    declared_with: Mapping[str, Any] | None = None,
    proxied_addresses: Mapping[str, tuple[Address, ...]] | None = None,
    queues: Sequence[str],
    routes: Routes | None = None,
    vhost: str,
    run: int,
    seed: int,
    folder: Path,
    alone: Collection[str] = (),
    nodes: Sequence[str] = (),
    access: Access = Access(),  # noqa: B008 - it is frozen
) -> RunningWorkload:
    """Start workers as ``RunningWorkload.begin`` does, and return at once.

    ``queues`` exist already; they are in index order. ``routes`` are the result of ``exchanges.establish``, or None for
    a plain workload. Publisher and consumer i begin at node i modulo the number of nodes. ``run`` is a number that no
    other run uses. ``folder`` must be empty, and gets all that is needed to read the history again. ``alone`` are
    clients (``publisher:0``) with a process of their own, as faults kill them. ``access``: the user that clients
    connect as. ``proxied_addresses``, ``nodes`` and ``declared_with``: see ``Load``.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    load = Load(
        run=run,
        seed=seed,
        vhost=vhost,
        addresses=tuple(addresses),
        proxied_addresses=dict(proxied_addresses or {}),
        queues=tuple(queues),
        shared={role: grouped(getattr(workload, f"{role}s"), alone=_indexes(alone, role)) for role in ROLES},
        nodes=tuple(nodes),
        turns=_turns(workload),
        dead_letter_queues={
            queues.index(queue): tuple(map(queues.index, taking))
            for queue, taking in workload.dead_letter_queues.items()
        },
        reject_one_in=workload.dead_letters.reject_one_in if workload.dead_letters else None,
        declared_with=declared_with,
        rebindings=rebindings(workload),
        **{name: getattr(workload, name) for name in _FROM_WORKLOAD},
    )
    load.save(folder)
    running = RunningWorkload(load, folder, routes, access)
    try:
        running.begin()
    except BaseException:
        running.close()
        raise
    return running


def _turns(workload: Workload) -> tuple[PublishArguments, ...]:
    """Return what messages are published with, by route; () if each queue has its own route."""
    if workload.routing is not None:
        return tuple(workload.routing.turns)
    if workload.dead_letters is None:
        return ()
    return tuple(PublishArguments(DEFAULT_EXCHANGE, queue, {}) for queue in workload.published_queues)


def _indexes(clients: Iterable[str], role: str) -> set[int]:
    """Return the indexes of those of the clients that have the role."""
    named = (client.split(":") for client in clients)
    return {int(index) for kind, index in named if kind == role}


_FROM_WORKLOAD = Load.model_fields.keys() & Workload.model_fields.keys() - {"queues"}
