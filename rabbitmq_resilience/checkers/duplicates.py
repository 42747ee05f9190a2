"""Find messages that arrived twice without the redelivered flag, and that no disturbance explains.

RabbitMQ marks messages that it delivers again after a lost connection or a rejection ("Reliability Guide", consumers).
It cannot mark a message that a queue delivered before it got another leader, or before its broker restarted, as that
knowledge may be gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rabbitmq_resilience.checkers.columns import Array, grouped, messages, pieces
from rabbitmq_resilience.checkers.instability import calm_of_copies
from rabbitmq_resilience.checkers.message_ledger import Ledger
from rabbitmq_resilience.checkers.verdict import History


@dataclass(frozen=True)
class Duplicate:
    """A delivery without the flag of a message that already came without it, from the same queue, at ``before_us``."""

    publisher: int
    sequence: int
    queue: int
    consumer: int
    received_us: int
    before_us: int


def forbidden(history: History, ledger: Ledger) -> Sequence[Duplicate]:
    """Return the unmarked duplicates that no disturbance of their queue explains, in the order of time.

    A disturbance explains a duplicate that came during it or after it, if the message had last come before the
    disturbance was over.
    """
    return [
        one
        for one in _in_order(history, ledger)
        if _goes_to(ledger, one, ledger.shards.first_of(one.queue)) and _was_calm(history, one, one.queue)
    ]


def forbidden_letters(history: History, ledger: Ledger) -> Sequence[Duplicate]:
    """Return the unmarked duplicates of dead letters that no disturbance of their source or of their queue explains."""
    taking = history.facts.letters.queues_of
    return [
        one
        for one in _in_order(history, ledger)
        for source in taking
        if one.queue in taking[source]
        and _goes_to(ledger, one, source)
        and _was_calm(history, one, one.queue)
        and _was_calm(history, one, source)
    ]


def _was_calm(history: History, one: Duplicate, queue: int) -> bool:
    calm = calm_of_copies(history.facts, queue)
    return bool(calm.within(np.array([one.before_us]), np.array([one.received_us])).all())


def _in_order(history: History, ledger: Ledger) -> list[Duplicate]:
    return sorted(_duplicates(history, ledger), key=lambda one: one.received_us)


def _duplicates(history: History, ledger: Ledger) -> Iterator[Duplicate]:
    """Yield, in no order, each unmarked delivery from a queue, or its shards, after an earlier unmarked one."""
    wanted = _doubled(history, ledger)
    if not len(wanted):
        return
    rows = _unmarked(history, wanted)
    place = ledger.shards.first(rows["queue"])
    order = np.lexsort((rows["received_us"], place, rows["sequence"], rows["publisher"]))
    rows, place = {name: column[order] for name, column in rows.items()}, place[order]
    keys = (rows["publisher"], rows["sequence"], place)
    again = np.flatnonzero(np.logical_and.reduce([key[1:] == key[:-1] for key in keys])) + 1
    for row in again.tolist():
        here = {name: column[row].item() for name, column in rows.items()}
        yield Duplicate(**here, before_us=rows["received_us"][row - 1].item())


def _unmarked(history: History, wanted: Array) -> dict[str, Array]:
    """Return the deliveries without the flag of the ``wanted`` messages, by column name."""
    names = ("publisher", "sequence", "queue", "consumer", "received_us")
    found = []
    for *columns, redelivered, intact in pieces(history.deliveries(), *names, "redelivered", "intact"):
        mine = intact & ~redelivered & np.isin(messages(columns[0], columns[1]), wanted)
        found.append([column[mine] for column in columns])
    return {name: np.concatenate(parts) for name, parts in zip(names, zip(*found, strict=True), strict=True)}


def _goes_to(ledger: Ledger, one: Duplicate, queue: int) -> bool:
    """Return whether the message was sent to that queue, or to the shards of which the queue is the first."""
    lanes = (lane for lane in ledger.messages[one.publisher].lanes if lane.there[one.sequence])
    return any(ledger.shards.first_of(int(lane.queue[one.sequence])) == queue for lane in lanes)


def _doubled(history: History, ledger: Ledger) -> Array:
    """Return the messages that came twice or more without the flag, from any queue."""
    counts = {publisher: np.zeros(len(m.outcome), np.uint8) for publisher, m in ledger.messages.items()}
    columns = ("publisher", "sequence", "redelivered", "intact")
    for publisher, sequence, redelivered, intact in pieces(history.deliveries(), *columns):
        fresh = intact & ~redelivered
        for (name,), rows in grouped(publisher[fresh]) if fresh.any() else ():
            mine = sequence[fresh][rows]
            mine = mine[mine < len(counts.get(name, ()))]
            if len(mine):
                times = np.bincount(mine, minlength=len(counts[name])) + counts[name]
                counts[name] = np.minimum(times, 2).astype(np.uint8)
    twice = {publisher: np.flatnonzero(times > 1) for publisher, times in counts.items()}
    found = [messages(np.full(len(n), p, np.uint64), n.astype(np.uint64)) for p, n in twice.items()]
    return np.concatenate([np.zeros(0, np.uint64), *found])
