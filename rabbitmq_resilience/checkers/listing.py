"""Decide whether a sample lists all queues that brokers must list at its moment."""

from __future__ import annotations

from collections.abc import Mapping

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.times import Period, Times, later, times
from rabbitmq_resilience.history.events import SampleEvent

#: How long a queue may be missing from listings after it was declared.
DECLARED_WITHIN_S = 5.0
_ENDS = ("connection_lost", "killed", "stopped", "hung")


def lists_all(facts: Facts, sample: SampleEvent) -> bool:
    """Return whether a sample lists each queue that must exist.

    A queue that its consumer declares must exist while the consumer is connected. While a step may delete queues, none
    must exist.
    """
    if sample.t_us in facts.once(_deleting):
        return True
    connected = facts.once(_connected)
    return all(
        queue.name in sample.queues
        for queue in facts.queues
        if queue.consumer is None or any(start <= sample.t_us < end for start, end in connected.get(queue.consumer, ()))
    )


def _deleting(facts: Facts) -> Times:
    deleting = (step.possible_us for step in facts.steps if step.injected and step.fault == "delete_queue")
    return later(times(deleting), end_us=DECLARED_WITHIN_S * 1e6)


def _connected(facts: Facts) -> Mapping[int, list[Period]]:
    """Return the periods in which each consumer was connected, without their first ``DECLARED_WITHIN_S``."""
    since: dict[int, float] = {}
    found: dict[int, list[Period]] = {}
    for consumer, event in facts.of_clients("consumer"):
        if event.event == "connected":
            since.setdefault(consumer, event.t_us + DECLARED_WITHIN_S * 1e6)
        elif event.event in _ENDS and consumer in since:
            found.setdefault(consumer, []).append((since.pop(consumer), event.t_us))
    for consumer, start_us in since.items():
        found.setdefault(consumer, []).append((start_us, NEVER_US))
    return found
