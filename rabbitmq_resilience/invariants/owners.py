"""Exclusive queues go with the connection of their consumer, whoever ended it, and their messages go with them.

Source: RabbitMQ, "Queues" (exclusive queues are deleted when their connection is closed or gone). A broker may notice
later than the client that a connection is gone; until then it takes messages for the queue, and does not let the
consumer declare it anew. So what was confirmed before the consumer was connected again may be gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.steps import NEVER_US
from rabbitmq_resilience.invariants.times import NEVER, Period, Times, periods, times, union
from rabbitmq_resilience.record.events import WorkerEvent

REASON = (
    'an exclusive queue is deleted with what it holds when the connection of its consumer is gone (RabbitMQ, "Queues")'
)
_ENDS = ("connection_lost", "killed", "hung", "stopped")


def owner_away(facts: Facts, queue: int) -> Times:
    """When the consumer of that queue was not connected, from the first time that it was on; never, where the queue is
    not exclusive."""
    consumer = facts.queues[queue].consumer
    return NEVER if consumer is None else facts.once(_absences).get(consumer, NEVER)


def some_owner_away(facts: Facts) -> Times:
    """When any of them was not."""
    return union(owner_away(facts, queue) for queue in range(len(facts.queues)))


def gone_with_owners(
    facts: Facts, queue: npt.NDArray[np.int64], confirmed_us: npt.NDArray[np.int64]
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Which of these lost messages may be gone with their queue, and why."""
    for index in sorted({*queue.tolist()} & {*range(len(facts.queues))}):
        until_us = max((end for _, end in periods(owner_away(facts, index))), default=None)
        if until_us is not None:
            yield REASON, (queue == index) & (confirmed_us < until_us)


def _absences(facts: Facts) -> Mapping[int, Times]:
    """By the consumer's number."""
    lost_us: dict[int, int | None] = {}
    found: dict[int, list[Period]] = {}
    for event in facts.of_kind(WorkerEvent):
        kind, _, number = event.worker.partition("-")
        if kind != "consumer":
            continue
        consumer = int(number)
        since_us = lost_us.get(consumer)
        if event.event == "connected":
            if since_us is not None:
                found.setdefault(consumer, []).append((since_us, event.t_us))
            lost_us[consumer] = None
        elif event.event in _ENDS and consumer in lost_us and since_us is None:
            lost_us[consumer] = event.t_us
    for consumer, since_us in lost_us.items():
        if since_us is not None:
            found.setdefault(consumer, []).append((since_us, NEVER_US))
    return {consumer: times(spans) for consumer, spans in found.items()}
