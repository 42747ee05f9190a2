"""Wait after the faults until the cluster is whole, and all messages are delivered and acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from rabbitmq_resilience.checkers.facts import QueueFacts
from rabbitmq_resilience.checkers.recovery import ill_nodes, ill_partitions, ill_queues
from rabbitmq_resilience.nemesis.fault import FaultContext
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable
from rabbitmq_resilience.sut.node_protocol import Endpoints
from rabbitmq_resilience.sut.observer import Observer
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until
from rabbitmq_resilience.workload.drain import Depth, DepthsUnknown
from rabbitmq_resilience.workload.queues import QueuePlace
from rabbitmq_resilience.workload.running_workload import IDLE_CONNECT_PER_S_MIN

RECOVERY_POLL_S = 0.25
SAMPLED_WITHIN_S = 10.0
#: Brokers' numbers of ready messages may be this old. A consumer that receives nothing for longer is not served.
IDLE_S = 5.0


def await_recovery(
    timeout_s: float, context: FaultContext, queues: Mapping[str, QueuePlace], *, takes_turns: bool = False
) -> str:
    """Wait until the cluster is whole, every publisher gets confirms, and no consumer leaves messages unread.

    Return in words what is still missing after ``timeout_s``, or '' if nothing is. ``takes_turns``: only one consumer
    of a queue at a time gets messages, and the others stand by.

    The wait gives a stall that outlasts the faults time to show. The same holds for restarts by which a mode mends a
    split: before them, the sides do not see each other, and each looks healthy. Idle connections get more time, as at
    the start: they return only as fast as this machine opens them.
    """
    observer, load = context.observer, context.load
    confirmed_before = load.confirmed_by_publisher()
    arrivals = _Arrivals(load.received_by_consumer())
    early = frozenset(load.early_consumers)
    declared = [QueueFacts(name, place["type"], frozenset(place["members"])) for name, place in queues.items()]

    def lacking() -> str:
        load.check()
        stalled = [i for i, now in enumerate(load.confirmed_by_publisher()) if now <= confirmed_before[i]]
        arrivals.look(load.received_by_consumer())
        ready = {name for name, row in observer.queues.items() if row["ready"]}
        keeping = {name for name in ready if not observer.queues[name]["unacked"]}
        without = [(i, ready) for i in arrivals.none_yet] + [(i, keeping) for i in arrivals.none_lately]
        idle = {i for i, _ in without}
        others = (i for i in range(arrivals.count) if takes_turns and i not in idle)
        served = {queue for i in others for queue in load.queues_of_consumer(i)}
        starved = sorted(
            {i for i, queues in without if i in early and (queues - served) & set(load.queues_of_consumer(i))}
        )
        parts = (
            ill_nodes(observer.states),
            ill_queues(declared, observer.queues),
            ill_partitions(observer.partitions),
            f"publisher {', '.join(map(str, stalled[:5]))} gets no confirms" if stalled else "",
            f"consumer {', '.join(map(str, starved[:5]))} gets none of the ready messages" if starved else "",
        )
        return "; ".join(filter(None, parts)) or _unseen_nodes(context.cluster)

    def idle_too() -> str:
        missing = load.idle_missing()
        return lacking() or (f"{missing} idle connections are not back" if missing else "")

    ends_s = time.monotonic() + timeout_s
    try:
        observer.fresh_queues(timeout_s=timeout_s)
    except WaitTimeout:
        return "no node lists the queues"
    more_s = load.idle_connections / IDLE_CONNECT_PER_S_MIN
    return _waited(lacking, ends_s=ends_s) or (_waited(idle_too, ends_s=ends_s + more_s) if more_s else "")


def _waited(lacking: Callable[[], str], *, ends_s: float) -> str:
    """Wait until ``lacking`` returns '', and return it; at ``ends_s`` (monotonic clock) return its last text."""
    try:
        wait_until(
            lacking,
            until=lambda text: not text,
            timeout_s=ends_s - time.monotonic(),
            what="recovery",
            poll_s=RECOVERY_POLL_S,
        )
    except WaitTimeout as error:
        return str(error.last_seen)
    return ""


class _Arrivals:
    """Find consumers that received nothing since this object was created, or nothing lately.

    ``received`` are the numbers of messages that each consumer has received so far.
    """

    def __init__(self, received: Sequence[int]) -> None:
        self._received = list(received)
        self._rose_s: dict[int, float] = {}

    def look(self, received: Sequence[int]) -> None:
        now_s = time.monotonic()
        self._rose_s |= {i: now_s for i, now in enumerate(received) if now > self._received[i]}
        self._received = list(received)

    @property
    def count(self) -> int:
        """Return the number of consumers."""
        return len(self._received)

    @property
    def none_yet(self) -> list[int]:
        return [i for i in range(len(self._received)) if i not in self._rose_s]

    @property
    def none_lately(self) -> list[int]:
        return [i for i, rose_s in self._rose_s.items() if time.monotonic() - rose_s > IDLE_S]


def _unseen_nodes(cluster: Endpoints) -> str:
    """Return in words which node does not see others running; '' if each node sees all."""
    names = {cluster.broker_name(node): node for node in cluster.topology.node_names}
    for node in cluster.topology.node_names:
        try:
            unseen = sorted(names[name] for name in names.keys() - cluster.api(node).running_nodes())
        except (ApiError, ApiUnreachable) as error:
            return f"{node} does not say which nodes it sees: {error}"
        if unseen:
            return f"{node} does not see {', '.join(unseen)} running"
    return ""


def await_acknowledged(observer: Observer, *, timeout_s: float) -> None:
    """Wait until consumers have acknowledged all deliveries. If one does not, a checker reports it."""
    ends_s = time.monotonic() + timeout_s
    with suppress(WaitTimeout):
        wait_until(
            lambda: not any(row["unacked"] for row in observer.fresh_queues(timeout_s=SAMPLED_WITHIN_S).values()),
            timeout_s=max(0.1, ends_s - time.monotonic()),
            what="all deliveries to be acknowledged",
        )


def depths(observer: Observer, queues: Collection[str]) -> Mapping[str, Depth]:
    """Return the depths of those of the ``queues`` that still exist.

    Raise ``DepthsUnknown`` if brokers do not list the queues, or do not know the depth of one.
    """
    try:
        rows = observer.fresh_queues(timeout_s=SAMPLED_WITHIN_S)
    except WaitTimeout as error:
        raise DepthsUnknown(str(error)) from error
    known = {
        name: Depth(row["ready"], row["unacked"], row.get("dead_letters", 0))
        for name, row in rows.items()
        if name in queues
    }
    if silent := [name for name, depth in known.items() if None in depth]:
        raise DepthsUnknown(f"no number of {', '.join(silent[:5])}")
    return known
