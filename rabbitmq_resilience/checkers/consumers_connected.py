"""Find when the consumers of a generated load were connected."""

from __future__ import annotations

from collections.abc import Mapping

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.times import Period

#: Events that end a connection.
_ENDS = frozenset({"connection_lost", "killed", "hung", "stopped"})


def connected_us(facts: Facts) -> Mapping[int, list[Period]]:
    """Return the periods in which each consumer was connected; the last one may end at NEVER_US. A consumer that never
    connected has none."""
    since: dict[int, float] = {}
    found: dict[int, list[Period]] = {}
    for consumer, event in facts.of_clients("consumer"):
        found.setdefault(consumer, [])
        if event.event == "connected":
            since.setdefault(consumer, event.t_us)
        elif event.event in _ENDS and consumer in since:
            found[consumer].append((since.pop(consumer), event.t_us))
    for consumer, start_us in since.items():
        found[consumer].append((start_us, NEVER_US))
    return found
