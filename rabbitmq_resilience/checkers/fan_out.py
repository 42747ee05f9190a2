"""Distinguish messages that go to several queues from shards, of which just one takes a message."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.columns import Array, messages
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.history.events import QueuesEvent

Flags = npt.NDArray[np.bool_]


def is_repeated(publisher: Array, sequence: Array) -> Flags:
    """Return a flag for each row (schema ``history.routes.OWED``): whether it has the message of the row before."""
    repeated = np.zeros(len(sequence), np.bool_)
    repeated[1:] = (sequence[1:] == sequence[:-1]) & (publisher[1:] == publisher[:-1])
    return repeated


@dataclass(frozen=True)
class Shards:
    """Groups of queues, by their indexes, of which just one takes a message. Its delivery shows which one it was."""

    groups: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, facts: Facts) -> Shards:
        index = {queue.name: number for number, queue in enumerate(facts.queues)}
        groups = (group for event in facts.of_kind(QueuesEvent) for group in event.shards)
        return cls(tuple(tuple(index[name] for name in group) for group in groups))

    def first(self, queue: Array) -> Array:
        """Return for each queue the first of its group, which stands for the group; the queue itself if it has none."""
        if not self.groups:
            return queue
        firsts = queue.copy()
        for group in self.groups:
            firsts[np.isin(queue, group)] = group[0]
        return firsts

    def first_of(self, queue: int) -> int:
        return self.group_of(queue)[0]

    def group_of(self, queue: int) -> tuple[int, ...]:
        """Return the group of the queue; the queue alone if it is no shard."""
        return next((group for group in self.groups if queue in group), (queue,))


def companions(lanes: Iterable[tuple[Array, Array]], shards: Shards) -> Mapping[int, frozenset[int]]:
    """Return for each queue the other queues with which it shares a message.

    These include the other shards of its group. If it shares a message with a shard, they include all shards of that
    group. ``lanes``: pairs of columns, which hold two queues of the same messages.
    """
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
