"""Dead letters as a record tells of them: which deliveries are some, and which messages consumers reject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.record.draws import Rejections

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Letters:
    """``queues_of``: for each queue whose dead letters go on to others those, by their indexes, each of which gets
    every one; of its messages consumers reject one in ``reject_one_in``. The queues of one message send their dead
    letters to different ones, so that each tells where it comes from."""

    queues_of: Mapping[int, Sequence[int]] = field(default_factory=dict)
    reject_one_in: int | None = None

    @property
    def queues(self) -> frozenset[int]:
        """Those that take dead letters."""
        return frozenset(queue for taking in self.queues_of.values() for queue in taking)

    @property
    def places(self) -> int:
        """To how many queues a dead letter goes at most."""
        return max(map(len, self.queues_of.values()), default=0)

    def taken_from(self, queue: Array) -> Flags:
        """Which deliveries are of dead letters, by the queues that they came from."""
        return np.isin(queue, sorted(self.queues))

    def have(self, queue: Array, place: int) -> Flags:
        """Which of the queues send their dead letters to so many that there is one in that place, counted from 0."""
        return np.isin(queue, [one for one, taking in self.queues_of.items() if len(taking) > place])

    def places_of(self, queue: Array, taken_from: Array) -> npt.NDArray[np.int64]:
        """In which place of those that take the dead letters of each ``queue`` the other one stands; -1: in none."""
        found = np.full(len(queue), -1, np.int64)
        for one, taking in self.queues_of.items():
            mine = queue == one
            for place, other in enumerate(taking) if mine.any() else ():
                found[mine & (taken_from == other)] = place
        return found

    def rejected(self, publisher: Array, sequence: Array) -> Flags:
        """Which messages consumers reject."""
        rejected = np.zeros(len(sequence), np.bool_)
        if self.reject_one_in is not None:
            draws = Rejections(self.reject_one_in)
            for one in np.unique(publisher).tolist():
                mine = publisher == one
                rejected[mine] = draws.of(one, sequence[mine])
        return rejected
