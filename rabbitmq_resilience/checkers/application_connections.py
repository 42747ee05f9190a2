"""Answer questions about the connections of the user's application, and about their consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.history.events import WireEvent
from rabbitmq_resilience.history.wire_connections import ConnectionLife, followed


def connections_of(facts: Facts) -> Sequence[ConnectionLife]:
    """Return all connections of the application, in the order in which they were opened; computed once."""
    return facts.once(_connections)


def _connections(facts: Facts) -> Sequence[ConnectionLife]:
    return followed(facts.of_kind(WireEvent))


def consumers_at(connections: Sequence[ConnectionLife], t_us: float) -> Mapping[str, int]:
    """Return how many consumers each queue had at that moment."""
    counts: dict[str, int] = {}
    for connection in connections:
        for consumer in connection.consumers:
            if consumer.from_us <= t_us < consumer.to_us:
                counts[consumer.queue] = counts.get(consumer.queue, 0) + 1
    return counts


def least_consumers(connections: Sequence[ConnectionLife], from_us: float, to_us: float) -> Mapping[str, int]:
    """Return how many consumers each queue had at ``to_us``, or less if it had less after one of them had ended since
    ``from_us``."""
    ends = [c.to_us for connection in connections for c in connection.consumers if from_us <= c.to_us < to_us]
    counts = [consumers_at(connections, at_us) for at_us in (*ends, to_us)]
    return {queue: min(count.get(queue, 0) for count in counts) for queue in counts[-1]}


def is_connected(connections: Sequence[ConnectionLife], process: str, t_us: float) -> bool:
    """Return whether a process had a connection whose handshake had ended at that moment."""
    return any(connection.is_open(t_us) for connection in connections if connection.process == process)


def doing(connections: Sequence[ConnectionLife], process: str, t_us: float, at: str) -> str:
    """Return in words what the last connection of a process was doing at that moment, whose text is ``at``."""
    mine = [connection for connection in connections if connection.process == process and connection.opened_us <= t_us]
    if not mine:
        return "it had never connected"
    last = mine[-1]
    states = [text for from_us, text in last.states if from_us <= t_us] or ["was opened, and got no further"]
    return f"its last connection, to {last.node}, {states[-1]} ({at})"
