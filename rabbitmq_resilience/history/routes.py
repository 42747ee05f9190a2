"""Keep the table of routes: the queues to which a message goes. Rows of messages name one route each.

What is owed is a message *and* a queue: a message that is routed to three queues must arrive three times. A row of
``PUBLISHES`` is one message and names its route; ``Routes.owed`` makes a row for each queue of that route.

If queues are shards of one exchange, one of them takes a message; a broker may choose another one after a restart. So a
route names the shard that was chosen before the load, and all shards have the same lane.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rabbitmq_resilience.history.history import HistoryError

ROUTES_FILE = "routes.json"

#: A message and one of its queues; the rows of a message follow each other. ``lane``: queues that share a message have
#: different lanes, counted from 0, so that publisher, sequence and lane identify a row. If each message goes to one
#: queue, all have the lane 0.
OWED = pa.schema(
    [
        ("publisher", pa.uint32()),
        ("queue", pa.uint32()),
        ("lane", pa.uint16()),
        ("sequence", pa.uint32()),
        ("due_us", pa.int64()),
        ("sent_us", pa.int64()),
        ("outcome", pa.uint8()),
        ("outcome_us", pa.int64()),
        ("node", pa.uint16()),
    ]
)

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Routes:
    """The routes of a run. ``queues`` has the indexes of the queues of each route, one route after another; route i
    ends before ``ends[i]``. ``shards``: groups of queues of which just one takes a message."""

    queues: Array
    ends: Array
    shards: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, routes: Sequence[Sequence[int]], shards: Sequence[Sequence[int]] = ()) -> Self:
        """Build the table. Raise ValueError for a route without queues, for a route with the same queue or shards of
        one group twice, and for a queue in two groups."""
        group_of = {queue: number for number, group in enumerate(shards) for queue in group}
        if len(group_of) < sum(map(len, shards)) or min(group_of, default=0) < 0:
            raise ValueError(f"shards are {list(map(list, shards))}; each must be an index from 0, in one group")
        for number, route in enumerate(routes):
            taken = [("shards of", group_of[queue]) if queue in group_of else ("", queue) for queue in route]
            if not route or len(set(taken)) < len(route) or min(route) < 0:
                raise ValueError(f"route {number} is {list(route)}; it must have queues (indexes from 0), each once")
        queues = np.array([queue for route in routes for queue in route], np.uint32)
        ends = np.cumsum([len(route) for route in routes], dtype=np.intp)
        return cls(queues, ends, tuple(tuple(group) for group in shards))

    @classmethod
    def plain(cls, queues: int) -> Self:
        """Return a table with one route to each queue, by its index."""
        return cls(np.arange(queues, dtype=np.uint32), np.arange(1, queues + 1, dtype=np.intp))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the table of a run. Raise HistoryError if there is no table that can be understood."""
        path = folder / ROUTES_FILE
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            return cls.of(table["routes"], table["shards"]) if isinstance(table, dict) else cls.of(table)
        except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
            raise HistoryError(f"{path} holds no table of routes: {error}") from None

    def save(self, folder: Path) -> None:
        """Write the table into ``folder``."""
        starts = [0, *self.ends[:-1].tolist()]
        table = [self.queues[start:end].tolist() for start, end in zip(starts, self.ends.tolist(), strict=True)]
        content = {"routes": table, "shards": self.shards} if self.shards else table
        (folder / ROUTES_FILE).write_text(json.dumps(content), encoding="utf-8")

    @cached_property
    def lengths(self) -> Array:
        """Return the number of queues of each route."""
        return np.diff(self.ends, prepend=0)

    @cached_property
    def lanes(self) -> Array:
        """Return the lane of each queue, by its index."""
        of_shards = [queue for group in self.shards for queue in group]
        lanes = np.zeros(max([int(self.queues.max(initial=0)), *of_shards]) + 1, np.uint16)
        first = {queue: group[0] for group in self.shards for queue in group}
        sharing: dict[int, set[int]] = {}
        for end, length in zip(self.ends.tolist(), self.lengths.tolist(), strict=True):
            if length > 1:
                route = {first.get(queue, queue) for queue in self.queues[end - length : end].tolist()}
                for queue in route:
                    sharing.setdefault(queue, set()).update(route)
        placed: set[int] = set()
        for queue, others in sorted(sharing.items()):
            taken = {int(lanes[other]) for other in others & placed}
            lanes[queue] = next(lane for lane in range(len(taken) + 1) if lane not in taken)
            placed.add(queue)
        for queue, representative in first.items():
            lanes[queue] = lanes[representative]
        return lanes

    def owed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the schema ``OWED``, in the order of the rows of ``batch`` (schema ``PUBLISHES``). Raise
        HistoryError for a route that is not in the table."""
        route = batch.column("route").to_numpy()
        if len(route) and int(route.max()) >= len(self.ends):
            raise HistoryError(f"a message has the route {route.max()}, and there are {len(self.ends)}")
        if len(self.queues) == len(self.ends):
            return self._rows(batch, self.queues[route])
        lengths = self.lengths[route]
        rows = np.repeat(np.arange(len(route)), lengths)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        starts = (self.ends - self.lengths)[route]
        return self._rows(batch.take(pa.array(rows)), self.queues[starts[rows] + place])

    def _rows(self, batch: pa.RecordBatch, queue: Array) -> pa.RecordBatch:
        added = {"queue": queue, "lane": self.lanes[queue]}
        columns = [pa.array(added[name]) if name in added else batch.column(name) for name in OWED.names]
        return pa.RecordBatch.from_arrays(columns, schema=OWED)
