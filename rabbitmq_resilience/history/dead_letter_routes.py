"""Represent dead letters as a record describes them: which deliveries are dead letters, and which messages are
rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.history.draws import Rejections

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class DeadLetterRoutes:
    """The dead letters of a run.

    ``queues_of``: by queue, the indexes of the queues that take its dead letters; each of these gets every one.
    Consumers reject one message in ``reject_one_in``. The queues of one message send their dead letters to different
    queues, so that each dead letter shows where it comes from.
    """

    queues_of: Mapping[int, Sequence[int]] = field(default_factory=dict)
    reject_one_in: int | None = None

    @property
    def queues(self) -> frozenset[int]:
        """Return the queues that take dead letters."""
        return frozenset(queue for taking in self.queues_of.values() for queue in taking)

    @property
    def places(self) -> int:
        """Return to how many queues a dead letter goes at most."""
        return max(map(len, self.queues_of.values()), default=0)

    def taken_from(self, queue: Array) -> Flags:
        """Return which deliveries are dead letters, by the queues from which they were taken."""
        return np.isin(queue, sorted(self.queues))

    def have(self, queue: Array, place: int) -> Flags:
        """Return which of the queues have a dead-letter queue in that place, counted from 0."""
        return np.isin(queue, [one for one, taking in self.queues_of.items() if len(taking) > place])

    def places_of(self, queue: Array, taken_from: Array) -> npt.NDArray[np.int64]:
        """Return the place of each ``taken_from`` among the queues that take the dead letters of ``queue``; -1 if it is
        none of them."""
        found = np.full(len(queue), -1, np.int64)
        for one, taking in self.queues_of.items():
            mine = queue == one
            for place, other in enumerate(taking) if mine.any() else ():
                found[mine & (taken_from == other)] = place
        return found

    def rejected(self, publisher: Array, sequence: Array) -> Flags:
        """Return which messages consumers reject."""
        rejected = np.zeros(len(sequence), np.bool_)
        if self.reject_one_in is not None:
            draws = Rejections(self.reject_one_in)
            for one in np.unique(publisher).tolist():
                mine = publisher == one
                rejected[mine] = draws.of(one, sequence[mine])
        return rejected
