"""Wait until every message that must arrive has arrived, by following the histories while they grow."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.history.dead_letter_routes import DeadLetterRoutes
from rabbitmq_resilience.history.history import (
    DELIVERIES,
    DELIVERIES_SUFFIX,
    PUBLISHES,
    PUBLISHES_SUFFIX,
    Outcome,
    StreamReader,
    files_of,
)
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

POLL_S = 0.2


class Depth(NamedTuple):
    """The number of messages that a queue holds, as the broker reports it.

    ``dead_letters`` counts messages that the queue keeps until another queue has confirmed them.
    """

    ready: int
    unacked: int
    dead_letters: int = 0

    def __str__(self) -> str:
        kept = f", {self.dead_letters} dead letters" if self.dead_letters else ""
        return f"{self.ready} ready, {self.unacked} unacked{kept}"


class DepthsUnknown(Exception):
    """No broker reports the depths of the queues; the text says why."""


#: Asks the brokers for the depth of each queue. Raises ``DepthsUnknown`` if they do not report it.
Depths = Callable[[], Mapping[str, Depth]]


@dataclass(frozen=True)
class DrainResult:
    """The outcome of a drain.

    ``complete``: the drain ended before its timeout, so messages that are missing now are lost. ``unconsumed``: how
    many awaited messages have not arrived. ``confirmed`` and ``received`` count distinct messages, once for each queue
    that they go to.
    """

    complete: bool
    confirmed: int
    received: int
    unconsumed: int
    detail: str


Array = npt.NDArray[Any]

#: Publisher and lane (``history.routes``). With dead letters: publisher and queue, of shards the first queue.
Key = tuple[int, int]


class Bitmap:
    """A growing set of small numbers."""

    def __init__(self) -> None:
        self.bits = np.zeros(1 << 16, dtype=np.bool_)

    def add(self, numbers: np.ndarray) -> None:
        if not len(numbers):
            return
        top = int(numbers.max())
        if top >= len(self.bits):
            grown = np.zeros(max(top + 1, 2 * len(self.bits)), dtype=np.bool_)
            grown[: len(self.bits)] = self.bits
            self.bits = grown
        self.bits[numbers] = True

    def __len__(self) -> int:
        return int(np.count_nonzero(self.bits))

    def plus(self, other: Bitmap) -> Bitmap:
        """Return the numbers of both sets."""
        both, (short, long) = Bitmap(), sorted((self.bits, other.bits), key=len)
        both.bits = long.copy()
        both.bits[: len(short)] |= short
        return both

    def minus(self, other: Bitmap) -> Bitmap:
        """Return the numbers of this set that are not in the other."""
        left, common = Bitmap(), min(len(self.bits), len(other.bits))
        left.bits = self.bits.copy()
        left.bits[:common] &= ~other.bits[:common]
        return left


class Tally:
    """Keep which messages are confirmed and which are received so far, for each queue that they go to.

    A rejected message is no longer missing when it has come as a dead letter from each queue that takes it. It is
    awaited even if it is unknown whether the message was confirmed.
    """

    def __init__(
        self, folder: Path, *, publishers: int, routes: Routes, letters: DeadLetterRoutes | None = None
    ) -> None:
        self._folder = folder
        self._publishers = publishers
        self._routes = routes
        self._letters = letters or DeadLetterRoutes()
        self._first = {queue: group[0] for group in routes.shards for queue in group}
        self._publishes: dict[Path, StreamReader] = {}
        self._deliveries: dict[Path, StreamReader] = {}
        self._confirmed: defaultdict[Key, Bitmap] = defaultdict(Bitmap)
        self._received: defaultdict[Key, Bitmap] = defaultdict(Bitmap)
        self._rejected: defaultdict[Key, Bitmap] = defaultdict(Bitmap)
        self._as_letters: defaultdict[Key, Bitmap] = defaultdict(Bitmap)  # by the queue of the dead letters
        self.rows = 0

    def update(self) -> None:
        """Read the rows that were written since the last call."""
        for path in files_of(self._folder, PUBLISHES_SUFFIX):
            reader = self._publishes.setdefault(path, StreamReader(path, PUBLISHES))
            for batch in reader.batches():
                owed = self._routes.owed(batch)
                publisher, queue, sequence, outcome = _columns(owed, "publisher", "queue", "sequence", "outcome")
                self._mark(self._confirmed, publisher, self._places(queue), sequence, outcome == Outcome.CONFIRMED)
        for path in files_of(self._folder, DELIVERIES_SUFFIX):
            reader = self._deliveries.setdefault(path, StreamReader(path, DELIVERIES))
            for batch in reader.batches():
                publisher, queue, sequence, intact = _columns(batch, "publisher", "queue", "sequence", "intact")
                self._receive(publisher, queue, sequence, intact)

    def _places(self, queue: Array) -> Array:
        """Return the second half of each row's ``Key``: the lane; with dead letters the queue, of shards the first."""
        if not self._letters.queues_of:
            return self._routes.lanes[queue]
        first = queue.copy()
        for shard, one in self._first.items():
            first[queue == shard] = one
        return first

    def _receive(self, publisher: Array, queue: Array, sequence: Array, intact: Array) -> None:
        letter = self._letters.taken_from(queue)
        self._mark(self._as_letters, publisher, queue, sequence, intact & letter)
        publisher, queue, sequence, intact = (column[~letter] for column in (publisher, queue, sequence, intact))
        place, rejected = self._places(queue), self._letters.rejected(publisher, sequence)
        self._mark(self._received, publisher, place, sequence, intact & ~rejected)
        if rejected.any():
            self._mark(self._rejected, publisher, place, sequence, intact & rejected)

    def _mark(
        self, bitmaps: defaultdict[Key, Bitmap], publisher: Array, place: Array, sequence: Array, chosen: Array
    ) -> None:
        """Mark the chosen messages, and count all rows, so that progress shows."""
        self.rows += len(sequence)
        for number in np.unique(publisher[publisher < self._publishers]).tolist():
            mine = chosen & (publisher == number)
            for one in np.unique(place[mine]).tolist():
                bitmaps[number, one].add(sequence[mine & (place == one)])

    @property
    def confirmed(self) -> int:
        return sum(map(len, self._confirmed.values()))

    @property
    def received(self) -> int:
        arrived = [*self._received.values(), *self._as_letters.values()]
        return sum(map(len, arrived))

    @property
    def unconsumed(self) -> int:
        return sum(self._missing(key) for key in {*self._confirmed, *self._rejected})

    def _missing(self, key: Key) -> int:
        """Return how many messages were confirmed or rejected, and neither received nor everywhere dead-lettered."""
        missing = self._confirmed[key].plus(self._rejected[key]).minus(self._received[key])
        taking = self._letters.queues_of.get(key[1], ()) if len(missing) else ()
        lacking = [missing.minus(self._as_letters[key[0], queue]) for queue in taking] or [missing]
        return len(functools.reduce(Bitmap.plus, lacking))


def drain(tally: Tally, depths: Depths, *, idle_s: float, timeout_s: float) -> DrainResult:
    """Follow the tally until no awaited message is missing, or until all queues were empty twice, ``idle_s`` apart.

    Nothing may arrive for ``idle_s`` before each of the two looks. Then the missing messages are lost, and the drain is
    complete. ``idle_s`` must be longer than the broker's statistics interval. The broker samples each queue at another
    time, so one look may miss a message on its way from one queue to another. While queues hold messages, wait until
    ``timeout_s``: their consumers may still reconnect.
    """
    moved_s, rows, held, empty = time.monotonic(), -1, "", False

    def drained() -> bool:
        nonlocal moved_s, rows, held, empty
        tally.update()
        if tally.rows != rows:
            moved_s, rows, held, empty = time.monotonic(), tally.rows, "", False
        if tally.unconsumed == 0:
            return True
        if time.monotonic() - moved_s < idle_s:
            return False
        held = _held(depths)
        if held or empty:
            empty = False
            return not held
        moved_s, empty = time.monotonic(), True
        return False

    try:
        wait_until(drained, timeout_s=timeout_s, what="the consumers to drain the queues", poll_s=POLL_S)
    except WaitTimeout:
        unsure = "all queues were empty at one look, and there was no time for the other"
        arriving = unsure if empty else "messages were still arriving"
        detail = f"nothing arrived for {idle_s:g} s, {held}" if held else arriving
        return _result(tally, complete=False, detail=f"{detail}, {timeout_s:g} s after the drain began")
    if tally.unconsumed == 0:
        return _result(tally, complete=True, detail="every confirmed message was received")
    return _result(tally, complete=True, detail=f"nothing arrived for {idle_s:g} s and all queues are empty")


def _held(depths: Depths) -> str:
    """Return in words what the queues still hold, or why that is unknown; '' if all queues are empty."""
    try:
        reported = depths().items()
    except DepthsUnknown as unknown:
        return f"and no broker says whether the queues are empty ({unknown})"
    full = [f"{name}: {depth}" for name, depth in reported if any(depth)]
    return f"yet queues hold messages ({'; '.join(full[:5])})" if full else ""


def _result(tally: Tally, *, complete: bool, detail: str) -> DrainResult:
    return DrainResult(complete, tally.confirmed, tally.received, tally.unconsumed, detail)


def _columns(batch: object, *names: str) -> list[np.ndarray]:
    return [batch.column(name).to_numpy(zero_copy_only=False) for name in names]  # type: ignore[attr-defined]
