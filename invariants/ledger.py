"""What became of every message, from one pass over the publishes and one over the deliveries.

Five bytes a message, beside counts of confirms a queue and moment. Every checker of messages reads it, so it is
built once for a history and kept as long as that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from invariants.columns import Array, grouped, pieces
from invariants.facts import Facts
from invariants.verdict import EXAMPLES_MAX, History
from reports.history import Outcome

#: Resolution at which moments of confirms are kept.
TICK_US = 20_000

#: What ``Messages.outcome`` holds where no row speaks of the sequence.
NO_ROW = 255

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


@dataclass
class Messages:
    """All messages of one publisher, by sequence: ``outcome`` (NO_ROW where nothing was recorded), the ``queue`` to
    which it was sent, whether ``received`` at all, and whether received at least once without the redelivered flag
    (``fresh``)."""

    outcome: Bytes = field(default_factory=lambda: np.full(0, NO_ROW, np.uint8))
    queue: npt.NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))
    received: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    fresh: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))

    def publish(self, sequence: Array, outcome: Array, queue: Array) -> None:
        size = int(sequence.max()) + 1
        if size > len(self.outcome):
            more = max(size, 2 * len(self.outcome)) - len(self.outcome)
            self.outcome = np.concatenate((self.outcome, np.full(more, NO_ROW, np.uint8)))
            self.queue = np.concatenate((self.queue, np.zeros(more, np.uint16)))
        self.outcome[sequence] = outcome
        self.queue[sequence] = queue

    def receive(self, sequence: Array, redelivered: Array) -> None:
        self.received[sequence] = True
        self.fresh[sequence[~redelivered] if redelivered.any() else sequence] = True

    @property
    def attempted(self) -> Flags:
        return _attempted(self.outcome)


def _attempted(outcome: Bytes) -> Flags:
    attempted: Flags = (outcome != NO_ROW) & (outcome != Outcome.NEVER_SENT)
    return attempted


@dataclass
class Reading:
    """What one consumer read of one publisher from one queue.

    ``overtaken`` counts deliveries without the redelivered flag that came after a higher sequence, and
    ``lowest_fresh`` is the lowest sequence without it.
    """

    highest: int = -1
    lowest_fresh: float = np.inf
    overtaken: int = 0
    first_us: float = np.inf
    last_us: float = -np.inf

    def read(self, sequence: Array, redelivered: Array, received_us: Array) -> None:
        before = highest_before(sequence, self.highest)
        fresh = ~redelivered
        self.overtaken += int(np.count_nonzero((sequence < before) & fresh))
        self.highest = max(int(before[-1]), int(sequence[-1]))
        if fresh.any():
            self.lowest_fresh = min(self.lowest_fresh, int(sequence[fresh].min()))
        self.first_us = min(self.first_us, int(received_us.min()))
        self.last_us = max(self.last_us, int(received_us.max()))


def highest_before(sequence: Array, highest: int) -> npt.NDArray[np.int64]:
    """For each delivery the highest sequence before it, ``highest`` before the first."""
    return np.maximum.accumulate(np.concatenate(([highest], sequence[:-1].astype(np.int64))))


@dataclass
class Ledger:
    """``confirms`` counts, for each queue, the confirms in each TICK_US from the start of the steady phase to the end
    of publishing. ``waited_us`` is, for each queue with messages under way at that end, when the first of them was
    confirmed, or the last given up if none was. ``read`` and ``read_fresh`` count deliveries of recorded sequences,
    the latter those without the redelivered flag. ``strange`` counts deliveries beyond every recorded sequence,
    ``broken`` those not intact, and ``misrouted`` those from another queue than the message was sent to.
    """

    messages: dict[int, Messages] = field(default_factory=dict)
    confirms: dict[int, npt.NDArray[np.uint32]] = field(default_factory=dict)
    waited_us: dict[int, int] = field(default_factory=dict)
    readings: dict[tuple[int, ...], Reading] = field(default_factory=dict)  # by consumer, queue, publisher
    deliveries: int = 0
    read: int = 0
    read_fresh: int = 0
    broken: int = 0
    strange: int = 0
    misrouted: int = 0
    strangers: list[tuple[int, int]] = field(default_factory=list)  # the first of them: publisher and sequence

    def enter_publishes(self, history: History, span_us: tuple[int, int] | None) -> None:
        columns = ("publisher", "queue", "sequence", "outcome", "outcome_us")
        confirmed_late: dict[int, int] = {}
        for publisher, queue, sequence, outcome, outcome_us in pieces(history.publishes(), *columns):
            for (name,), rows in grouped(publisher):
                self.messages.setdefault(name, Messages()).publish(sequence[rows], outcome[rows], queue[rows])
            if span_us is not None:
                confirmed = outcome == Outcome.CONFIRMED
                self._count_confirms(queue[confirmed], outcome_us[confirmed], span_us)
                for row in np.flatnonzero(outcome_us >= span_us[1]).tolist():
                    name, t_us = int(queue[row]), int(outcome_us[row])
                    if confirmed[row]:
                        confirmed_late[name] = min(confirmed_late.get(name, t_us), t_us)
                    else:
                        self.waited_us[name] = max(self.waited_us.get(name, t_us), t_us)
        self.waited_us |= confirmed_late
        for messages in self.messages.values():
            messages.received = np.zeros(len(messages.outcome), np.bool_)
            messages.fresh = np.zeros(len(messages.outcome), np.bool_)

    def _count_confirms(self, queue: Array, confirmed_us: Array, span_us: tuple[int, int]) -> None:
        within = (confirmed_us >= span_us[0]) & (confirmed_us < span_us[1])
        if not within.all():
            queue, confirmed_us = queue[within], confirmed_us[within]
        if not len(queue):
            return
        ticks = (confirmed_us - span_us[0]) // TICK_US
        size = (span_us[1] - span_us[0]) // TICK_US + 1
        for (name,), rows in grouped(queue):
            mine = ticks[rows]
            first = int(mine.min())
            counts = np.bincount(mine - first)
            total = self.confirms.setdefault(name, np.zeros(size, np.uint32))
            total[first : first + len(counts)] += counts.astype(np.uint32)

    def enter_deliveries(self, history: History) -> None:
        columns = ("consumer", "queue", "publisher", "sequence", "received_us", "redelivered", "intact")
        for *row, intact in pieces(history.deliveries(), *columns):
            self.deliveries += len(intact)
            whole = row if intact.all() else [column[intact] for column in row]
            self.broken += len(intact) - len(whole[0])
            if len(whole[0]):
                self._receive(whole)

    def _receive(self, columns: Sequence[Array]) -> None:
        consumer, queue, publisher, sequence, received_us, redelivered = columns
        for key, rows in grouped(consumer, queue, publisher):
            mine, mine_redelivered = sequence[rows], redelivered[rows]
            self.readings.setdefault(key, Reading()).read(mine, mine_redelivered, received_us[rows])
            messages = self.messages.setdefault(key[2], Messages())
            known = mine < len(messages.received)
            if not known.all():
                unknown = mine[~known]
                self.strange += len(unknown)
                self.strangers += [(key[2], n) for n in unknown[: EXAMPLES_MAX - len(self.strangers)].tolist()]
                mine, mine_redelivered = mine[known], mine_redelivered[known]
            self.misrouted += int(
                np.count_nonzero(_attempted(messages.outcome[mine]) & (messages.queue[mine] != key[1]))
            )
            self.read += len(mine)
            self.read_fresh += len(mine) - int(np.count_nonzero(mine_redelivered))
            messages.receive(mine, mine_redelivered)


_ledgers: WeakKeyDictionary[History, Ledger] = WeakKeyDictionary()


def ledger_of(history: History) -> Ledger:
    """The ledger of a history: built when first asked for, forgotten with the history."""
    if history not in _ledgers:
        ledger = Ledger()
        ledger.enter_publishes(history, Facts(history.events).publishing_us)
        ledger.enter_deliveries(history)
        _ledgers[history] = ledger
    return _ledgers[history]
