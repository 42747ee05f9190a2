"""Compute how far apart the messages of a queue are due."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rabbitmq_resilience.checkers.columns import Array
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.message_ledger import NO_ROW, Ledger
from rabbitmq_resilience.checkers.units import seconds

#: Publishers that sent this part of what their target asks for sent what they were to send.
HELD_RATIO = 0.8


@dataclass(frozen=True)
class Spacing:
    """How far apart the messages of a queue are due, in us.

    ``even_us``: the distance by the lowest target, if messages were spread evenly over queues; 0 if there was ever no
    limit. ``held``: whether publishers sent nearly all that the target asks for, so that a queue which got few messages
    was to get few.
    """

    even_us: float
    held: bool

    @classmethod
    def of(cls, facts: Facts, ledger: Ledger) -> Spacing:
        """Compute the spacing from the load and from what was sent."""
        pieces = list(facts.rate.pieces(*facts.publishing_us or (0.0, 1.0)))
        limits = [rate for _, _, rate in pieces if rate]
        if not limits or any(rate is None for _, _, rate in pieces):
            return cls(0.0, held=False)
        asked = sum(seconds(end - start) * (rate or 0) for start, end, rate in pieces)
        sent = sum(int(np.count_nonzero(messages.outcome != NO_ROW)) for messages in ledger.messages.values())
        return cls(1e6 * len(facts.published_queues) / min(limits), held=sent >= HELD_RATIO * asked)

    def of_queue_us(self, due_us: Array) -> float:
        """Return the spacing of the queue whose messages were due at these moments."""
        mostly_us = float(np.median(np.diff(due_us))) if self.held and len(due_us) > 1 else 0.0
        return max(self.even_us, mostly_us) if self.even_us else 0.0
