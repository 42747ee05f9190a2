"""Dead letters as a record tells of them: which deliveries are some, and which messages consumers reject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.record.draws import Rejections

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Letters:
    """``queue_of``: for each queue whose dead letters go on to another one that one, by their indexes; of their
    messages consumers reject one in ``reject_one_in``."""

    queue_of: Mapping[int, int] = field(default_factory=dict)
    reject_one_in: int | None = None

    @property
    def queues(self) -> frozenset[int]:
        """Those that take dead letters."""
        return frozenset(self.queue_of.values())

    def taken_from(self, queue: Array) -> Flags:
        """Which deliveries are of dead letters, by the queues that they came from."""
        return np.isin(queue, sorted(self.queues))

    def belong(self, queue: Array, taken_from: Array) -> Flags:
        """Whether what was published to each ``queue`` may come from each other one as a dead letter."""
        belong = np.zeros(len(queue), np.bool_)
        for one, taking in self.queue_of.items():
            belong |= (queue == one) & (taken_from == taking)
        return belong

    def rejected(self, publisher: Array, sequence: Array) -> Flags:
        """Which messages consumers reject."""
        rejected = np.zeros(len(sequence), np.bool_)
        if self.reject_one_in is not None:
            draws = Rejections(self.reject_one_in)
            for one in np.unique(publisher).tolist():
                mine = publisher == one
                rejected[mine] = draws.of(one, sequence[mine])
        return rejected
