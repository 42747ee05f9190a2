"""Which queues brokers must list at a moment."""

from __future__ import annotations

from collections.abc import Mapping

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.steps import NEVER_US
from rabbitmq_resilience.invariants.times import Period
from rabbitmq_resilience.record.events import SampleEvent

#: How long after its consumer has connected a queue that this declares may not be listed yet.
DECLARED_WITHIN_S = 5.0
_ENDS = ("connection_lost", "killed", "stopped")


def lists_all(facts: Facts, sample: SampleEvent) -> bool:
    """Return whether a sample lists each queue that must be there.

    A queue that its consumer declares must be there while that is connected; once a step deletes queues, none must.
    """
    if sample.t_us >= facts.once(_deleted_us):
        return True
    connected = facts.once(_connected)
    return all(
        queue.name in sample.queues
        for queue in facts.queues
        if queue.consumer is None or any(start <= sample.t_us < end for start, end in connected.get(queue.consumer, ()))
    )


def _deleted_us(facts: Facts) -> float:
    deleting = (step for step in facts.steps if step.injected and step.fault == "delete_queue")
    return min((step.possible_us[0] for step in deleting), default=NEVER_US)


def _connected(facts: Facts) -> Mapping[int, list[Period]]:
    """Return the times in which each consumer was connected, without the first seconds of each."""
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
