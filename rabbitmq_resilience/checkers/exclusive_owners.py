"""Find when queues that consumers declare may be gone.

An exclusive queue goes with the connection of its consumer, however the connection ended, and its messages go with it.
A queue that expires goes when it had no consumer for that time.

Sources: RabbitMQ, "Queues" (exclusive queues are deleted when their connection is closed or gone), and "Time-To-Live
and Expiration" (a queue is deleted when it was unused for its time: it had no consumer and was not declared again; that
may come later, and the time begins again when its node starts). A broker may notice later than the client that a
connection is gone. Until then it takes messages for the queue, and does not let the consumer declare an exclusive queue
again. So messages that were sent before the consumer was connected again may be gone, unless the broker must have
deleted the queue before that. The broker may also notice earlier, if no traffic gets through.

A consumer may also bind its queue to exchanges. While the queue is away, messages that go to other queues too are
routed without it and confirmed. Another node may route without the queue for a moment after it is bound, as the nodes
learn of the binding one after another (with Khepri a majority knows it when the broker answers).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.columns import Array, grouped, pieces
from rabbitmq_resilience.checkers.facts import Facts, QueueFacts
from rabbitmq_resilience.checkers.instability import disturbances
from rabbitmq_resilience.checkers.liveness import Promises
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.times import NEVER, Period, Times, later, periods, times, union
from rabbitmq_resilience.checkers.unreachable_clients import kept_away
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.events import LoadEvent

REASON = (
    'an exclusive queue is deleted with what it holds when the connection of its consumer is gone (RabbitMQ, "Queues")'
)
EXPIRED = 'a queue expires with what it holds when it had no consumer for limits.expires_ms (RabbitMQ, "Time-To-Live")'
#: How much earlier than its client a broker may notice that a connection is gone: two heartbeats.
NOTICED_EARLIER_S = 10.0
#: How much later an undisturbed broker may delete the queue: two heartbeats, over slow links.
DELETED_LATER_S = 30.0
#: How long after its consumer is back all undisturbed nodes route to a queue that the consumer has bound.
BOUND_LATER_S = 2.0
_CONSUMER = "consumer"
#: Worker events that end a connection before the end of the run.
_ENDS = ("connection_lost", "killed")


class Stay(NamedTuple):
    """One connection of a consumer: the node, the start and the end. ``killed``: the connection ended because the
    consumer's process was killed."""

    node: str
    start_us: float
    end_us: float
    killed: bool = False


def lacking_of(facts: Facts, cluster: ClusterFacts, promised: Promises, queue: QueueFacts, *, grace_s: float) -> Times:
    """Return when a queue may stand still (``Promises.lacking``). A queue that its consumer declares may also stand
    still while the consumer is away."""
    return unowned(facts, queue, grace_s=grace_s) | lacking_at_nodes(facts, cluster, promised, queue, grace_s=grace_s)


def unowned(facts: Facts, queue: QueueFacts, *, grace_s: float) -> Times:
    """Return when steps kept the consumer away that declares the queue, with ``grace_s`` after each. Messages to the
    queue are returned then."""
    if queue.consumer is None:
        return NEVER
    return later(kept_away(facts, _CONSUMER).when(queue.consumer), end_us=grace_s * 1e6)


def lacking_at_nodes(
    facts: Facts, cluster: ClusterFacts, promised: Promises, queue: QueueFacts, *, grace_s: float
) -> Times:
    """Return when nodes that have the queue may not serve. An exclusive queue is at the node of its consumer, like a
    classic queue; if that node is not recorded, it may be at any node. A queue that expires may still be at an earlier
    node."""
    if queue.consumer is None:
        return promised.lacking(queue, grace_s=grace_s)
    lacking = NEVER
    for stay in facts.once(_stays).get(queue.consumer, ()):
        nodes = {stay.node} & {*cluster.nodes} or cluster.nodes
        end_us = NEVER_US if queue.expires_s is not None else stay.end_us + grace_s * 1e6
        at_us = times([(stay.start_us, end_us)])
        there = [QueueFacts(queue.name, "classic", frozenset({node})) for node in nodes]
        lacking |= at_us & union(promised.lacking(one, grace_s=grace_s) for one in there)
    return lacking


def gone_with_owners(
    history: History, publisher: Array, sequence: Array, queue: Array, sent_us: Array
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield each reason, and which of these lost messages may be gone with their queue for it. A message was not in the
    queue any more if its consumer had received a later one of the same publisher before the connection was gone, unless
    priorities may have let the later one overtake it."""
    facts = history.facts
    owned = {index for index, q in enumerate(facts.queues) if q.consumer is not None}
    concerned = owned & {*queue.tolist()}
    if not concerned:
        return
    overtaken_us = _overtaken_us(history, publisher, sequence, queue, concerned)
    for reason in (REASON, EXPIRED):
        gone = np.zeros(len(queue), np.bool_)
        for index in (i for i in concerned if (facts.queues[i].expires_s is not None) == (reason == EXPIRED)):
            for start_us, end_us in may_be_gone(facts, facts.queues[index]):
                gone |= (queue == index) & (sent_us < end_us) & (overtaken_us > start_us)
        yield reason, gone


def _overtaken_us(
    history: History, publisher: Array, sequence: Array, queue: Array, concerned: Set[int]
) -> npt.NDArray[np.float64]:
    """Return for each message when a later one of its publisher first came from its queue; NEVER_US if none did."""
    found = np.full(len(queue), NEVER_US, np.float64)
    if any(event.priorities for event in history.facts.of_kind(LoadEvent)):
        return found
    read: dict[tuple[int, int], list[tuple[Array, Array]]] = defaultdict(list)
    for name, its, *numbered in pieces(history.deliveries(), "publisher", "queue", "sequence", "received_us"):
        here = np.isin(its, list(concerned))
        for key, rows in grouped(name[here], its[here]) if here.any() else ():
            read[key[0], key[1]].append((numbered[0][here][rows], numbered[1][here][rows]))
    for key, rows in grouped(publisher, queue):
        if (key[0], key[1]) not in read:
            continue
        numbers, received_us = (np.concatenate(column) for column in zip(*read[key[0], key[1]], strict=True))
        in_turn = np.argsort(numbers, kind="stable")
        first_us = np.minimum.accumulate(received_us[in_turn][::-1])[::-1]
        place = np.searchsorted(numbers[in_turn], sequence[rows], side="right")
        found[rows] = np.append(first_us.astype(np.float64), NEVER_US)[place]
    return found


def may_be_gone(facts: Facts, queue: QueueFacts) -> list[Period]:
    """Return the periods that may cost the queue's messages, from the loss of its consumer.

    Each lasts until the queue was surely deleted, or surely there again. Messages sent before its end may be gone.
    """
    if queue.consumer is None:
        return []
    found = []
    if queue.expires_s is None:
        for start_us, again_us in absences(facts, queue.consumer):
            if queue.bound:
                found.append((start_us, _routed_by_us(facts, queue, again_us)))
            else:
                found.append((start_us, min(again_us, _deleted_by_us(facts, queue, start_us))))
        return found
    for stay, again_us in _absences(facts, queue.consumer):
        if again_us - _noticed_us(facts, stay) >= queue.expires_s * 1e6:
            found.append((stay.end_us, _routed_by_us(facts, queue, again_us) if queue.bound else again_us))
    return found


def _deleted_by_us(facts: Facts, queue: QueueFacts, gone_us: float) -> float:
    """Return by when an exclusive queue was surely deleted on all nodes, after its connection was gone."""
    return _later_by_us(facts, queue, gone_us + DELETED_LATER_S * 1e6)


def _routed_by_us(facts: Facts, queue: QueueFacts, again_us: float) -> float:
    """Return by when all nodes surely route to the queue, after its consumer has bound it again."""
    return _later_by_us(facts, queue, again_us + BOUND_LATER_S * 1e6)


def _later_by_us(facts: Facts, queue: QueueFacts, until_us: float) -> float:
    """Return the end of the disturbances that began before that moment, or the moment itself."""
    for start_us, end_us in periods(disturbances(facts, queue.name)):
        if start_us <= until_us:
            until_us = max(until_us, end_us)
    return until_us


def _noticed_us(facts: Facts, stay: Stay) -> float:
    """Return the earliest moment at which the broker may have noticed that the connection is gone. If the process was
    killed, that is the moment of the kill, unless a step may have kept the two apart."""
    early_us = stay.end_us - NOTICED_EARLIER_S * 1e6
    apart = times(s.possible_us for s in facts.steps if s.injected and (s.clients_cut or s.starved or s.down))
    if stay.killed and (apart & times([(early_us, stay.end_us)])).empty:
        return stay.end_us
    return early_us


def absences(facts: Facts, consumer: int) -> list[Period]:
    """Return the periods in which the consumer had no connection. The last has no end if it never connected again."""
    return [(stay.end_us, again_us) for stay, again_us in _absences(facts, consumer)]


def _absences(facts: Facts, consumer: int) -> Iterator[tuple[Stay, float]]:
    """Return each connection that ended, and when the next one began; NEVER_US after the last."""
    stays = facts.once(_stays).get(consumer, ())
    again = [*(stay.start_us for stay in stays[1:]), NEVER_US]
    return ((stay, start_us) for stay, start_us in zip(stays, again, strict=False) if stay.end_us < NEVER_US)


def _stays(facts: Facts) -> Mapping[int, list[Stay]]:
    """Return the connections of each consumer by its number. The last connection has no end if it was not lost before
    the end of the run."""
    open_: dict[int, tuple[str, float]] = {}
    found: dict[int, list[Stay]] = defaultdict(list)
    for consumer, event in facts.of_clients(_CONSUMER):
        if event.event == "connected":
            open_.setdefault(consumer, (event.node, event.t_us))
        elif event.event in _ENDS and consumer in open_:
            found[consumer].append(Stay(*open_.pop(consumer), event.t_us, killed=event.event == "killed"))
    for consumer, (node, start_us) in open_.items():
        found[consumer].append(Stay(node, start_us, NEVER_US))
    return found
