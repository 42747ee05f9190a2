"""Decide whether a sample lists all queues that brokers must list at its moment."""

from __future__ import annotations

from collections.abc import Mapping

from rabbitmq_resilience.checkers.consumers_connected import connected_us
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.times import Period, Times, later, times
from rabbitmq_resilience.history.events import SampleEvent

#: How long a queue may be missing from listings after it was declared.
DECLARED_WITHIN_S = 5.0
#: The queue that a step deleted in early records.
ANY_QUEUE = ""


def lists_all(facts: Facts, sample: SampleEvent) -> bool:
    """Return whether a sample lists each queue that must exist.

    A queue that its consumer declares must exist while the consumer is connected. While a step may have deleted a
    queue, that queue need not exist.
    """
    deleted, connected = facts.once(_deleted), facts.once(_connected)
    if any(sample.t_us in deleted[name] for name in deleted.keys() & {ANY_QUEUE}):
        return True
    return all(
        queue.name in sample.queues or (queue.name in deleted and sample.t_us in deleted[queue.name])
        for queue in facts.queues
        if queue.consumer is None or any(start <= sample.t_us < end for start, end in connected.get(queue.consumer, ()))
    )


def _deleted(facts: Facts) -> Mapping[str, Times]:
    """Return when steps may have deleted each queue. Early records do not say which: these are under ``ANY_QUEUE``."""
    deleting = [step for step in facts.steps if step.injected and step.fault == "delete_queue"]
    return {
        name: later(
            times(step.possible_us for step in deleting if step.effect.queue_deleted == name),
            end_us=DECLARED_WITHIN_S * 1e6,
        )
        for name in {step.effect.queue_deleted for step in deleting}
    }


def _connected(facts: Facts) -> Mapping[int, list[Period]]:
    """Return the periods in which each consumer was connected, without their first ``DECLARED_WITHIN_S``."""
    shift_us = DECLARED_WITHIN_S * 1e6
    return {
        consumer: [(start + shift_us, end) for start, end in spans] for consumer, spans in connected_us(facts).items()
    }
