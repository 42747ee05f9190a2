"""Waiting until everything that must arrive has arrived, by following the histories while they grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reports.history import (
    DELIVERIES,
    DELIVERIES_SUFFIX,
    PUBLISHES,
    PUBLISHES_SUFFIX,
    Outcome,
    StreamReader,
)
from topologies.waiting import WaitTimeout, wait_until

POLL_S = 0.2


class Depth(NamedTuple):
    """How many messages a queue holds, as the broker reports it."""

    ready: int
    unacked: int


#: Asks the broker for the depth of each queue; None where it gives no answer.
Depths = Callable[[], Mapping[str, Depth] | None]


@dataclass(frozen=True)
class DrainResult:
    """``complete``: whatever was confirmed and not received now will never be. ``unconsumed`` is the number of
    those messages; ``confirmed`` and ``received`` count distinct messages."""

    complete: bool
    confirmed: int
    received: int
    unconsumed: int
    detail: str


class Bitmap:
    """A set of small numbers that grows."""

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

    def minus(self, other: Bitmap) -> int:
        """How many numbers are in this set and not in the other."""
        common = min(len(self.bits), len(other.bits))
        return len(self) - int(np.count_nonzero(self.bits[:common] & other.bits[:common]))


class Tally:
    """Which messages are confirmed and which are received, so far."""

    def __init__(self, folder: Path, *, publishers: int) -> None:
        self._folder = folder
        self._publishes: dict[Path, StreamReader] = {}
        self._deliveries: dict[Path, StreamReader] = {}
        self._confirmed = [Bitmap() for _ in range(publishers)]
        self._received = [Bitmap() for _ in range(publishers)]
        self.rows = 0

    def update(self) -> None:
        """Read what was written since the last call."""
        for path in self._folder.glob(f"*{PUBLISHES_SUFFIX}"):
            reader = self._publishes.setdefault(path, StreamReader(path, PUBLISHES))
            for batch in reader.batches():
                publisher, sequence, outcome = _columns(batch, "publisher", "sequence", "outcome")
                self._mark(self._confirmed, publisher, sequence, outcome == Outcome.CONFIRMED)
        for path in self._folder.glob(f"*{DELIVERIES_SUFFIX}"):
            reader = self._deliveries.setdefault(path, StreamReader(path, DELIVERIES))
            for batch in reader.batches():
                publisher, sequence, intact = _columns(batch, "publisher", "sequence", "intact")
                self._mark(self._received, publisher, sequence, intact)

    def _mark(self, bitmaps: list[Bitmap], publisher: np.ndarray, sequence: np.ndarray, chosen: np.ndarray) -> None:
        self.rows += len(sequence)
        for number in np.unique(publisher):
            if number < len(bitmaps):
                bitmaps[number].add(sequence[chosen & (publisher == number)])

    @property
    def confirmed(self) -> int:
        return sum(map(len, self._confirmed))

    @property
    def received(self) -> int:
        return sum(map(len, self._received))

    @property
    def unconsumed(self) -> int:
        pairs = zip(self._confirmed, self._received, strict=True)
        return sum(confirmed.minus(received) for confirmed, received in pairs)


def drain(tally: Tally, depths: Depths, *, idle_s: float, timeout_s: float) -> DrainResult:
    """Follow the tally until nothing confirmed is missing, or nothing has moved for ``idle_s``.

    ``idle_s`` must be longer than the broker's statistics interval, as its depths are believed only then: if all
    queues are empty, what is still missing is lost and the drain is complete.
    """
    moved_s, rows = time.monotonic(), -1

    def settled() -> bool:
        nonlocal moved_s, rows
        tally.update()
        if tally.rows != rows:
            moved_s, rows = time.monotonic(), tally.rows
        return tally.unconsumed == 0 or time.monotonic() - moved_s >= idle_s

    try:
        wait_until(settled, timeout_s=timeout_s, what="the consumers to drain the queues", poll_s=POLL_S)
    except WaitTimeout:
        return _result(tally, complete=False, detail=f"messages were still arriving after {timeout_s:g} s")
    if tally.unconsumed == 0:
        return _result(tally, complete=True, detail="every confirmed message was received")
    return _judge_idle(tally, depths(), idle_s=idle_s)


def _judge_idle(tally: Tally, depths: Mapping[str, Depth] | None, *, idle_s: float) -> DrainResult:
    if depths is None:
        detail = f"nothing arrived for {idle_s:g} s, and no broker says whether the queues are empty"
        return _result(tally, complete=False, detail=detail)
    full = [f"{name}: {d.ready} ready, {d.unacked} unacked" for name, d in depths.items() if d != Depth(0, 0)]
    if full:
        detail = f"nothing arrived for {idle_s:g} s, yet queues hold messages ({'; '.join(full[:5])})"
        return _result(tally, complete=False, detail=detail)
    return _result(tally, complete=True, detail=f"nothing arrived for {idle_s:g} s and all queues are empty")


def _result(tally: Tally, *, complete: bool, detail: str) -> DrainResult:
    return DrainResult(complete, tally.confirmed, tally.received, tally.unconsumed, detail)


def _columns(batch: object, *names: str) -> list[np.ndarray]:
    return [batch.column(name).to_numpy(zero_copy_only=False) for name in names]  # type: ignore[attr-defined]
