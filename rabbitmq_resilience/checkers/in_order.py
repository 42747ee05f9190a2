"""Find the messages of a publisher that RabbitMQ promises to keep in order with each other.

Sources: RabbitMQ, "Consumers" and "Priority Queues"; AMQP 0-9-1, section 4.7: one channel, one exchange, one queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.columns import Array, grouped, pieces
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.draws import Priorities
from rabbitmq_resilience.history.events import LoadEvent

#: Priorities are less than this.
PRIORITIES = 256


@dataclass(frozen=True)
class InOrder:
    """The groups of messages whose order is promised. ``priorities``: those of the messages; None without any.
    ``connections``: for each publisher that awaits no confirms, the first sequence of each recorded connection, in
    order."""

    priorities: Priorities | None = None
    connections: Mapping[int, npt.NDArray[np.int64]] = field(default_factory=dict)

    @classmethod
    def of(cls, history: History) -> InOrder:
        """Return the groups of a history."""
        values = next((tuple(event.priorities) for event in history.facts.of_kind(LoadEvent)), ())
        connections = {} if history.facts.heeds_confirms else _connections(history)
        return cls(Priorities(values) if values else None, connections)

    def groups(self, publisher: Array, sequence: Array) -> npt.NDArray[np.int64]:
        """Return a number for each message: messages of a publisher with the same number are in order.

        They have the same priority. If publishers await no confirms, they were also written to the same connection.
        """
        found = np.zeros(len(sequence), np.int64)
        for (name,), rows in grouped(publisher) if self.priorities is not None or self.connections else ():
            if self.priorities is not None:
                found[rows] = self.priorities.of(name, sequence[rows])
            if name in self.connections:
                found[rows] += PRIORITIES * np.searchsorted(self.connections[name], sequence[rows], side="right")
        return found


def _connections(history: History) -> Mapping[int, npt.NDArray[np.int64]]:
    """Return the first sequences that each publisher wrote to its connections, in order."""
    connected_us: dict[int, list[int]] = {}
    for publisher, event in history.facts.of_clients("publisher"):
        if event.event == "connected":
            connected_us.setdefault(publisher, []).append(event.t_us)
    found = {name: np.full(len(moments), np.iinfo(np.int64).max) for name, moments in connected_us.items()}
    for names, sequence, sent_us in pieces(history.publishes(), "publisher", "sequence", "sent_us"):
        for (name,), rows in grouped(names):
            for number, since_us in enumerate(connected_us.get(name, ())):
                later = sequence[rows][sent_us[rows] >= since_us]
                if len(later):
                    found[name][number] = min(int(found[name][number]), int(later.min()))
    return {name: np.sort(firsts) for name, firsts in found.items()}
