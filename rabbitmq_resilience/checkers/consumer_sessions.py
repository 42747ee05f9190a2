"""Find which connection of which consumer received what from which queue.

The connections make the stints of a consumer distinguishable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rabbitmq_resilience.checkers.columns import Array, grouped, pieces
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.instability import calm_of
from rabbitmq_resilience.checkers.verdict import History

_ENDS = frozenset({"connection_lost", "killed", "hung", "stopped", "started"})
#: The time of sending of a message that is not known to be sent.
_NOT_SENT = -1
_NOTHING = np.zeros(0, np.int64)


class ConsumerSession(NamedTuple):
    """A connection of a consumer, counted from 0, that received something from a queue."""

    consumer: int
    connection: int


class Delivery(NamedTuple):
    """One message as it was received."""

    consumer: int
    publisher: int
    sequence: int
    sent_us: int
    received_us: int


@dataclass
class Received:
    """What came over one connection from one queue."""

    first_us: int
    last_us: int
    #: When the connection ended for the consumer; infinite if it did not.
    ended_us: float
    #: What ended it: a name of ``history.events.WorkerEvent``.
    ended_by: str
    count: int = 0
    #: The part of ``count`` that came while nothing disturbed the brokers.
    calm: int = 0


Stints = Mapping[ConsumerSession, Received]


def stints_of(history: History) -> dict[int, dict[ConsumerSession, Received]]:
    """Return what came over each connection, by queue."""
    ends = connection_ends(history.facts)
    queues: dict[int, dict[ConsumerSession, Received]] = {}
    for queue, consumer, received_us, intact in pieces(
        history.deliveries(), "queue", "consumer", "received_us", "intact"
    ):
        for (in_queue, name), rows in grouped(queue[intact], consumer[intact]) if intact.any() else ():
            mine_us = received_us[intact][rows]
            mine = ends.get(name, NO_ENDS)
            for (number,), of_one in grouped(np.searchsorted(mine.t_us, mine_us, "right")):
                moments = mine_us[of_one]
                first_us, last_us = int(moments.min()), int(moments.max())
                of_queue = queues.setdefault(in_queue, {})
                stint = of_queue.setdefault(
                    ConsumerSession(name, number), Received(first_us, last_us, *mine.of(number))
                )
                stint.first_us, stint.last_us = min(stint.first_us, first_us), max(stint.last_us, last_us)
                stint.count += len(moments)
                calm = calm_of(history.facts, in_queue)
                stint.calm += int(np.count_nonzero(calm.within(moments, moments)))
    return queues


class SessionEnds(NamedTuple):
    """When a consumer lost its connection, and what ended it. Between two of these moments there was at most one
    connection."""

    t_us: Array
    events: Sequence[str]

    def of(self, connection: int) -> tuple[float, str]:
        """Return when that connection ended, and what ended it."""
        if connection < len(self.events):
            return float(self.t_us[connection]), self.events[connection]
        return np.inf, ""


NO_ENDS = SessionEnds(_NOTHING, ())


def connection_ends(facts: Facts) -> Mapping[int, SessionEnds]:
    """Return the ends of connections of each consumer that is recorded at all."""
    ends: dict[int, list[tuple[int, str]]] = {}
    for consumer, event in facts.of_clients("consumer"):
        mine = ends.setdefault(consumer, [])
        if event.event in _ENDS:
            mine.append((event.t_us, event.event))
    return {
        consumer: SessionEnds(np.array([t_us for t_us, _ in recorded], np.int64), [event for _, event in recorded])
        for consumer, recorded in ends.items()
    }


@dataclass(frozen=True, eq=False)
class Rows:
    """The deliveries of one queue in the order of their receipt; ``stint`` is an index into ``stints``."""

    stints: Sequence[ConsumerSession]
    stint: Array
    publisher: Array
    sequence: Array
    sent_us: Array
    received_us: Array

    @cached_property
    def changes(self) -> Array:
        """Return the rows that another consumer received than the row before."""
        consumers = np.array([stint.consumer for stint in self.stints])[self.stint]
        changes: Array = np.flatnonzero(np.diff(consumers)) + 1
        return changes

    def delivery(self, row: int) -> Delivery:
        columns = (self.publisher, self.sequence, self.sent_us, self.received_us)
        return Delivery(self.stints[int(self.stint[row])].consumer, *(int(column[row]) for column in columns))


def rows_of(history: History, queues: Collection[int]) -> Mapping[int, Rows]:
    """Return the deliveries of those queues. Messages that are not known to be sent are left out."""
    sent = _sent(history)
    ends = connection_ends(history.facts)
    parts: dict[int, list[tuple[Array, ...]]] = {}
    names = ("queue", "consumer", "publisher", "sequence", "received_us", "intact")
    for queue, *columns, intact in pieces(history.deliveries(), *names):
        for (in_queue,), rows in grouped(queue[intact]) if intact.any() else ():
            if in_queue in queues:
                parts.setdefault(in_queue, []).append(tuple(column[intact][rows] for column in columns))
    return {queue: _in_order(of_queue, sent, ends) for queue, of_queue in parts.items()}


def _in_order(parts: Sequence[tuple[Array, ...]], sent: Mapping[int, Array], ends: Mapping[int, SessionEnds]) -> Rows:
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[-1], kind="stable")
    consumer, publisher, sequence, received_us = (column[order] for column in columns)
    sent_us, connection, stint = (np.full(len(order), _NOT_SENT, np.int64) for _ in range(3))
    for (name,), rows in grouped(publisher):
        known_us = sent.get(name, _NOTHING)
        wanted = np.minimum(sequence[rows], len(known_us))
        sent_us[rows] = np.append(known_us, _NOT_SENT)[wanted]
    for (name,), rows in grouped(consumer):
        connection[rows] = np.searchsorted(ends[name].t_us, received_us[rows], "right")
    stints: list[ConsumerSession] = []
    for (name, number), rows in grouped(consumer, connection):
        stint[rows] = len(stints)
        stints.append(ConsumerSession(name, number))
    known = sent_us != _NOT_SENT
    return Rows(stints, *(column[known] for column in (stint, publisher, sequence, sent_us, received_us)))


def _sent(history: History) -> Mapping[int, Array]:
    """Return when each publisher sent each message, by sequence."""
    sent: dict[int, Array] = {}
    for publisher, sequence, sent_us in pieces(history.publishes(), "publisher", "sequence", "sent_us"):
        for (name,), rows in grouped(publisher):
            mine, moments = sequence[rows], sent_us[rows]
            known_us = sent.setdefault(name, _NOTHING)
            size = int(mine.max()) + 1
            if size > len(known_us):
                more = max(size, 2 * len(known_us)) - len(known_us)
                known_us = sent[name] = np.concatenate((known_us, np.full(more, _NOT_SENT, np.int64)))
            known_us[mine] = moments
    return sent
