"""Compute when the next message of a queue was due."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rabbitmq_resilience.checkers.columns import Array
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.message_ledger import NO_ROW, Ledger
from rabbitmq_resilience.checkers.units import seconds

#: Publishers that sent this part of what their target asks for sent what they were to send.
HELD_RATIO = 0.8
#: How much longer than publishing the load is taken to go on.
GOES_ON_S = 86_400.0
#: Messages a second of a queue while nothing limits the load: the next one is due at once.
UNLIMITED_PER_S = 1e6


@dataclass(frozen=True, eq=False)
class Spacing:
    """When messages of a queue are due, if the target spreads them evenly over queues.

    ``due``: how many were due by each of ``edges_us``, between which the target stays the same. ``held``: whether
    publishers sent nearly all that the target asks for, so that a queue which got few messages was to get few.
    """

    edges_us: Array
    due: Array
    held: bool

    @classmethod
    def of(cls, facts: Facts, ledger: Ledger) -> Spacing:
        """Compute the spacing from the load and from what was sent."""
        start_us, end_us = facts.publishing_us or (0.0, 1.0)
        queues = max(1, len(facts.published_queues))
        pieces = list(facts.rate.pieces(start_us, end_us + GOES_ON_S * 1e6))  # a message may be due after the end
        counts = [
            seconds(end - start) * (UNLIMITED_PER_S if rate is None else rate / queues) for start, end, rate in pieces
        ]
        asked = [(end - start, rate) for start, end, rate in facts.rate.pieces(start_us, end_us)]
        sent = sum(int(np.count_nonzero(messages.outcome != NO_ROW)) for messages in ledger.messages.values())
        held = all(rate is not None for _, rate in asked) and sent >= HELD_RATIO * sum(
            seconds(long_us) * (rate or 0) for long_us, rate in asked
        )
        return cls(np.array([start_us, *(end for _, end, _ in pieces)]), np.cumsum([0.0, *counts]), held)

    def next_due_us(self, moments_us: Array) -> Array:
        """Return when, after each of the moments, the next message of a queue was due by the target; infinite if none
        was.

        Which of the last messages before a lower target belongs to which queue is not known. So the spacing a second
        later counts, if it is longer.
        """
        return np.maximum(self._next_us(moments_us), self._next_us(moments_us + 1e6) - 1e6)

    def _next_us(self, moments_us: Array) -> Array:
        due = np.interp(moments_us, self.edges_us, self.due)
        return np.interp(due + 1, self.due, self.edges_us, right=np.inf)

    def mostly_us(self, due_us: Array) -> float:
        """Return how far apart messages mostly came in the queue whose messages were due at these moments; 0 if that
        says nothing."""
        return float(np.median(np.diff(due_us))) if self.held and len(due_us) > 1 else 0.0
