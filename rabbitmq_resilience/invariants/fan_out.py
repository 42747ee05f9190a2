"""Messages that go to several queues, and queues of which just one takes a message: how rows of both are told apart."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.invariants.columns import Array, messages
from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.record.events import QueuesEvent

Flags = npt.NDArray[np.bool_]


def is_repeated(publisher: Array, sequence: Array) -> Flags:
    """Which rows (schema ``record.routes.OWED``) are of the message of the row before, for another queue."""
    repeated = np.zeros(len(sequence), np.bool_)
    repeated[1:] = (sequence[1:] == sequence[:-1]) & (publisher[1:] == publisher[:-1])
    return repeated


@dataclass(frozen=True)
class Shards:
    """Groups of queues, by their indexes, of which just one takes a message. Which one it was, is known when it comes
    from there."""

    groups: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, facts: Facts) -> Shards:
        index = {queue.name: number for number, queue in enumerate(facts.queues)}
        told = (group for event in facts.of_kind(QueuesEvent) for group in event.shards)
        return cls(tuple(tuple(index[name] for name in group) for group in told))

    def first(self, queue: Array) -> Array:
        """For each queue the first of its group, which stands for all of them; itself where it is in none."""
        if not self.groups:
            return queue
        firsts = queue.copy()
        for group in self.groups:
            firsts[np.isin(queue, group)] = group[0]
        return firsts

    def first_of(self, queue: int) -> int:
        return self.group_of(queue)[0]

    def group_of(self, queue: int) -> tuple[int, ...]:
        """The queues of which one takes what is expected of this one; itself alone where it is no shard."""
        return next((group for group in self.groups if queue in group), (queue,))


def companions(lanes: Iterable[tuple[Array, Array]], shards: Shards) -> Mapping[int, frozenset[int]]:
    """For each queue that shares a message with others, those others: all of its shards, and where it is shared with a
    shard, all of these. ``lanes``: pairs of columns, each with a queue of the same messages."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    for one, other in lanes:
        for pair in np.unique(messages(one, other)).tolist():
            a, b = divmod(pair, 1 << 32)
            for one_shard, other_shard in itertools.product(shards.group_of(a), shards.group_of(b)):
                found[one_shard].add(other_shard)
                found[other_shard].add(one_shard)
    for group in shards.groups:
        for queue in group:
            found[queue] |= {*group} - {queue}
    return {queue: frozenset(others) for queue, others in found.items()}
