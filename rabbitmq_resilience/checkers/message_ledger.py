"""Record the fate of every message, from one pass over the publishes and one over the deliveries.

The ledger needs seven bytes for each message (six more for each further queue of the message), and counts of confirms
by queue and moment. All checkers of messages read it, so it is built once for a history and kept as long as the
history.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.columns import Array, grouped, pieces
from rabbitmq_resilience.checkers.fan_out import Shards, companions, is_repeated
from rabbitmq_resilience.checkers.in_order import InOrder
from rabbitmq_resilience.checkers.traffic import Traffic
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, History
from rabbitmq_resilience.history.dead_letter_routes import DeadLetterRoutes
from rabbitmq_resilience.history.history import Outcome

#: The value in ``Messages.outcome`` of a sequence without a row.
NO_ROW = 255
#: The value in ``QueueColumn.queue`` of a message that goes to no queue of the lane.
NO_QUEUE = 0xFFFFFFFF

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


@dataclass
class QueueColumn:
    """At most one queue of each message of a publisher; all arrays are by sequence (see ``history.routes.OWED``).

    ``queue``: the queue that the message goes to. ``received``: whether it came from that queue. ``fresh``: whether it
    came at least once without the redelivered flag. ``dead`` and ``dead_fresh`` are the same for its dead letters, with
    one array for each place of a queue that takes them (``history.dead_letter_routes``).
    """

    queue: npt.NDArray[np.uint32]
    received: Flags
    fresh: Flags
    dead: list[Flags] = field(default_factory=list)
    dead_fresh: list[Flags] = field(default_factory=list)

    @property
    def there(self) -> Flags:
        """Return a flag for each message: whether it goes to a queue of this lane."""
        there: Flags = self.queue != NO_QUEUE
        return there

    def receive(self, sequence: Array, redelivered: Array) -> None:
        """Enter deliveries of messages of this lane."""
        self.received[sequence] = True
        self.fresh[sequence[~redelivered] if redelivered.any() else sequence] = True


@dataclass
class Messages:
    """All messages of one publisher, by sequence. ``outcome`` is NO_ROW for a sequence without a record. ``lanes`` hold
    the queues; there is one lane if no message goes to several queues. ``rows`` counts pairs of message and queue."""

    outcome: Bytes = field(default_factory=lambda: np.full(0, NO_ROW, np.uint8))
    lanes: list[QueueColumn] = field(default_factory=list)
    rows: int = 0

    def publish(self, sequence: Array, outcome: Array, queue: Array, lane: Array) -> None:
        """Enter messages with their outcomes and queues; all arrays have one value for each pair of message and
        queue."""
        self.rows += len(sequence)
        size = int(sequence.max()) + 1
        if size > len(self.outcome):
            more = max(size, 2 * len(self.outcome)) - len(self.outcome)
            self.outcome = np.concatenate((self.outcome, np.full(more, NO_ROW, np.uint8)))
            for one in self.lanes:
                one.queue = np.concatenate((one.queue, np.full(more, NO_QUEUE, np.uint32)))
        while int(lane.max()) >= len(self.lanes):
            self.lanes.append(QueueColumn(np.full(len(self.outcome), NO_QUEUE, np.uint32), *_NOTHING))
        self.outcome[sequence] = outcome
        for (number,), rows in grouped(lane):
            self.lanes[number].queue[sequence[rows]] = queue[rows]

    def complete(self, places: int) -> None:
        """Prepare for deliveries, and for dead letters in ``places`` places; no publish may follow."""
        for lane in self.lanes:
            none = [np.zeros(len(lane.queue), np.bool_) for _ in range(2 + 2 * places)]
            lane.received, lane.fresh, lane.dead, lane.dead_fresh = none[0], none[1], none[2::2], none[3::2]

    @property
    def received(self) -> Flags:
        """Return a flag for each message: whether it came from any of its queues, or as a dead letter of one."""
        received = np.zeros(len(self.outcome), np.bool_)
        for flags in (flags for lane in self.lanes for flags in (lane.received, *lane.dead)):
            received |= flags
        return received

    def attempted(self, lane: QueueColumn) -> Flags:
        """Return a flag for each message: whether the publisher tried to send it to a queue of the lane."""
        return _attempted(self.outcome) & lane.there

    def lost(self, lane: QueueColumn) -> Flags:
        """Return a flag for each message of the lane: whether it was confirmed and never came, also not as a dead
        letter."""
        lost: Flags = (self.outcome == Outcome.CONFIRMED) & lane.there & ~lane.received
        for arrived in lane.dead:
            lost &= ~arrived
        return lost


_NOTHING = np.zeros(0, np.bool_), np.zeros(0, np.bool_)


def _attempted(outcome: Bytes) -> Flags:
    attempted: Flags = (outcome != NO_ROW) & (outcome != Outcome.NEVER_SENT)
    return attempted


@dataclass
class Reading:
    """The deliveries to one consumer of one publisher and group from one queue.

    ``overtaken`` counts deliveries without the redelivered flag that came after a higher sequence. ``lowest_fresh`` is
    the lowest sequence without the flag. ``backwards``: whether the rows were not read in the order of time, as they
    came from the files of two processes; then ``overtaken`` means nothing.
    """

    highest: int = -1
    lowest_fresh: float = np.inf
    overtaken: int = 0
    first_us: float = np.inf
    last_us: float = -np.inf

    #: The number of deliveries.
    count: int = 0
    backwards: bool = False

    def read(self, sequence: Array, redelivered: Array, received_us: Array) -> None:
        """Enter deliveries in the order in which they were read."""
        self.count += len(sequence)
        self.backwards |= bool(received_us[0] < self.last_us or (np.diff(received_us.astype(np.int64)) < 0).any())
        before = highest_before(sequence, self.highest)
        fresh = ~redelivered
        self.overtaken += int(np.count_nonzero((sequence < before) & fresh))
        self.highest = max(int(before[-1]), int(sequence[-1]))
        if fresh.any():
            self.lowest_fresh = min(self.lowest_fresh, int(sequence[fresh].min()))
        self.first_us = min(self.first_us, int(received_us.min()))
        self.last_us = max(self.last_us, int(received_us.max()))


def highest_before(sequence: Array, highest: int) -> npt.NDArray[np.int64]:
    """Return for each delivery the highest sequence before it; ``highest`` before the first."""
    return np.maximum.accumulate(np.concatenate(([highest], sequence[:-1].astype(np.int64))))


@dataclass
class Ledger:
    """The fate of all messages of a history.

    ``traffic`` counts confirms and deliveries by moment; it is None if the start of the steady phase or the end of
    publishing is not known. ``read`` counts deliveries of messages from a queue that they were sent to, ``read_fresh``
    those without the redelivered flag. ``strange`` counts deliveries of messages that were never sent, ``broken`` those
    not intact, and ``misrouted`` those from another queue than the message was sent to. A delivery from another shard
    than expected (``fan_out.Shards``) is not misrouted. ``span_us`` has the times of the first and the last row.
    ``letters_read`` counts deliveries of dead letters, ``letters_fresh`` those without the redelivered flag; the last
    came at ``letters_last_us``. They are not in ``read`` and ``readings``.
    """

    messages: dict[int, Messages] = field(default_factory=dict)
    traffic: Traffic | None = None
    #: By consumer, queue, publisher and group (``InOrder.groups``).
    readings: dict[tuple[int, ...], Reading] = field(default_factory=dict)
    in_order: InOrder = field(default_factory=InOrder)
    deliveries: int = 0
    read: int = 0
    read_fresh: int = 0
    broken: int = 0
    strange: int = 0
    misrouted: int = 0
    strangers: list[tuple[int, int]] = field(default_factory=list)  # the first of them: publisher and sequence
    received_by: dict[int, int] = field(default_factory=dict)  # deliveries to each consumer, of any kind
    span_us: tuple[float, float] = (np.inf, -np.inf)
    shards: Shards = field(default_factory=Shards)
    letters: DeadLetterRoutes = field(default_factory=DeadLetterRoutes)
    letters_read: int = 0
    letters_fresh: int = 0
    letters_last_us: float = -np.inf

    @property
    def confirms(self) -> Mapping[int, npt.NDArray[np.uint32]]:
        """Return for each queue the confirms in each TICK_US, from the steady phase to the end of publishing."""
        return self.traffic.confirms if self.traffic is not None else {}

    def enter_publishes(self, history: History, span_us: tuple[int, int] | None) -> None:
        """Enter all messages of a history. ``span_us``: the time in which ``traffic`` is counted; None for no
        ``traffic``."""
        columns = ("publisher", "queue", "lane", "sequence", "due_us", "sent_us", "outcome", "outcome_us")
        self.traffic = None if span_us is None else Traffic(span_us)
        for publisher, queue, lane, sequence, due_us, sent_us, outcome, outcome_us in pieces(
            history.publishes(), *columns
        ):
            self._saw(sent_us, outcome_us)
            for (name,), rows in grouped(publisher):
                mine = (column[rows] for column in (sequence, outcome, queue, lane))
                self.messages.setdefault(name, Messages()).publish(*mine)
            if self.traffic is not None:
                self.traffic.enter_publishes(queue, due_us, outcome, outcome_us)
                if lane.any():
                    again = is_repeated(publisher, sequence) & (outcome == Outcome.CONFIRMED)
                    self.traffic.enter_repeated(outcome_us[again])
        for messages in self.messages.values():
            messages.complete(self.letters.places)

    def companions(self) -> Mapping[int, frozenset[int]]:
        """Return for each queue the others that share a message with it, or may take it instead of another shard."""
        return companions(self._shared(), self.shards)

    def sharing_queues(self) -> frozenset[int]:
        """Return the queues that share a message with others."""
        return frozenset(int(queue) for pair in self._shared() for column in pair for queue in np.unique(column))

    def _shared(self) -> Iterator[tuple[Array, Array]]:
        """Yield for each pair of lanes the two columns of queues of the same messages."""
        pairs = (pair for of_one in self.messages.values() for pair in itertools.combinations(of_one.lanes, 2))
        for one, other in pairs:
            both = one.there & other.there
            if both.any():
                yield one.queue[both], other.queue[both]

    def _saw(self, *moments_us: Array) -> None:
        first_us, last_us = self.span_us
        self.span_us = (
            min(first_us, *(int(column.min()) for column in moments_us)),
            max(last_us, *(int(column.max()) for column in moments_us)),
        )

    def enter_deliveries(self, history: History) -> None:
        """Enter all deliveries of a history, after its messages."""
        columns = ("consumer", "queue", "publisher", "sequence", "received_us", "redelivered", "intact")
        for *row, intact in pieces(history.deliveries(), *columns):
            self.deliveries += len(intact)
            self._saw(row[4])
            for (consumer,), rows in grouped(row[0]):
                self.received_by[consumer] = self.received_by.get(consumer, 0) + len(row[0][rows])
            whole = row if intact.all() else [column[intact] for column in row]
            self.broken += len(intact) - len(whole[0])
            letter = self.letters.taken_from(whole[1])
            if letter.any():
                self._receive_letters(*(column[letter] for column in (*whole[1:4], whole[5])))
                self.letters_last_us = max(self.letters_last_us, int(whole[4][letter].max()))
                whole = [column[~letter] for column in whole]
            if len(whole[0]):
                self._receive(whole)
                if self.traffic is not None:
                    self.traffic.enter_deliveries(whole[1], whole[4])

    def _receive(self, columns: Sequence[Array]) -> None:
        consumer, queue, publisher, sequence, received_us, redelivered = columns
        for key, rows in grouped(consumer, queue, publisher, self.in_order.groups(publisher, sequence)):
            mine, mine_redelivered = sequence[rows], redelivered[rows]
            self.readings.setdefault(key, Reading()).read(mine, mine_redelivered, received_us[rows])
            messages = self.messages.setdefault(key[2], Messages())
            known = self._known(key[2], mine)
            if not known.all():
                mine, mine_redelivered = mine[known], mine_redelivered[known]
            self.misrouted += len(mine)
            for lane in messages.lanes:
                there = self.shards.first(lane.queue[mine]) == self.shards.first_of(key[1])
                whole = there.all()
                of_lane = (mine, mine_redelivered) if whole else (mine[there], mine_redelivered[there])
                self.misrouted -= len(of_lane[0])
                self.read += len(of_lane[0])
                self.read_fresh += len(of_lane[0]) - int(np.count_nonzero(of_lane[1]))
                lane.receive(*of_lane)

    def _receive_letters(self, queue: Array, publisher: Array, sequence: Array, redelivered: Array) -> None:
        for (name,), rows in grouped(publisher):
            messages = self.messages.setdefault(name, Messages())
            known = self._known(name, sequence[rows])
            mine, taken_from = sequence[rows][known], queue[rows][known]
            again, belong = redelivered[rows][known], np.zeros(len(mine), np.bool_)
            for lane in messages.lanes:
                place_of = self.letters.places_of(lane.queue[mine], taken_from)
                for place in range(self.letters.places):
                    there = place_of == place
                    belong |= there
                    lane.dead[place][mine[there]] = True
                    lane.dead_fresh[place][mine[there & ~again]] = True
            self.letters_read += int(np.count_nonzero(belong))
            self.letters_fresh += int(np.count_nonzero(belong & ~again))
            self.misrouted += int(np.count_nonzero(~belong))

    def _known(self, publisher: int, sequence: Array) -> Flags:
        """Return a flag for each message: whether the publisher tried to send it. Count the others as strange."""
        messages = self.messages[publisher]
        known: Flags = sequence < len(messages.outcome)
        known[known] = _attempted(messages.outcome[sequence[known]])
        if not known.all():
            unknown = sequence[~known]
            self.strange += len(unknown)
            self.strangers += [(publisher, n) for n in unknown[: EXAMPLES_MAX - len(self.strangers)].tolist()]
        return known


_ledgers: WeakKeyDictionary[History, Ledger] = WeakKeyDictionary()


def ledger_of(history: History) -> Ledger:
    """Return the ledger of a history. It is built on the first call and kept as long as the history."""
    if history not in _ledgers:
        ledger = Ledger(shards=Shards.of(history.facts), in_order=InOrder.of(history), letters=history.facts.letters)
        ledger.enter_publishes(history, history.facts.publishing_us)
        ledger.enter_deliveries(history)
        _ledgers[history] = ledger
    return _ledgers[history]


def nothing_after(history: History, ledger: Ledger, queues: Collection[int] | None = None) -> str:
    """Return in words the fault after which no message came from any queue, or from any of ``queues``; empty if none.

    The effect of such a fault on messages is not known.
    """
    facts = history.facts
    lasts_us = [reading.last_us for key, reading in ledger.readings.items() if queues is None or key[1] in queues]
    last_us = max([*lasts_us, *([ledger.letters_last_us] if queues is None else ())], default=-np.inf)
    for step in facts.steps:
        if step.is_fault and step.injected and step.possible_us[0] > last_us:
            return f"no message was received after {step} had begun at {facts.at(step.possible_us[0])}"
    return ""
