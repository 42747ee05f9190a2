"""Check that messages of one publisher in one queue arrive in the order in which they were published."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rabbitmq_resilience.checkers.application_order import order_of_application
from rabbitmq_resilience.checkers.columns import Array, grouped, matching, messages, pieces
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.loss_permits import permits_loss, splits_of
from rabbitmq_resilience.checkers.message_ledger import (
    Ledger,
    Messages,
    Reading,
    highest_before,
    ledger_of,
    nothing_after,
)
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.events import ApplicationUseEvent
from rabbitmq_resilience.history.history import Outcome

#: How many suspicious deliveries are examined one by one. Beyond this a violation is certain, and its exact size is not
#: worth the memory.
SUSPECTS_MAX = 1_000_000

#: How many deliveries are sorted by time at once; each takes 60 bytes.
SORTED_MAX = 5_000_000

#: Consumer, queue, publisher, and the group of its messages that has one order (``InOrder.groups``).
Key = tuple[int, ...]
#: Publisher, sequence, queue.
Owed = tuple[int, int, int]


class Order(InvariantSpec):
    """A delivery jumps back if a higher sequence of its publisher arrived from that queue before it. That is
    illegal, unless

    - the delivery is marked as redelivered, or is a duplicate of a message received earlier;
    - the higher sequence has another priority: only messages of one priority are in order;
    - publishers await no confirms, and wrote the two messages to different connections;
    - the message was not confirmed: a message without a known outcome may have waited in a lost connection while the
      publisher continued over a new one, and the order is promised within one channel only; for a refused message
      nothing is promised.

    A queue is judged if at most one consumer at a time read from it. A consumer that reconnects remains the same one.
    Several consumers are fine if the last delivery to one is before the first delivery to the next. Other queues are
    named, and not judged. With ``shared_queues: judged`` they are judged too, by the time of receipt at any consumer,
    although brokers do not promise this order.

    Of an application, messages are compared that were published on one channel, through one exchange and with one
    priority, and came to one channel from one queue whose only consumer it was; also those that were published without
    confirms. Messages are left out that are equal to others, came again, or were refused. If the cluster's mode allows
    splits, a message that was overtaken makes the verdict UNKNOWN.

    The verdict is UNKNOWN if there are deliveries but no queue to judge, or if no delivery came from a judged queue
    after a fault had begun. Without deliveries there was no disorder. Messages that were taken on two sides of a split,
    which the mode allowed, have no common order: they are counted apart.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"watched", "faults_begun"})

    shared_queues: Literal["named", "judged"] = "named"

    def check(self, history: History) -> Finding:
        use = next(history.facts.of_kind(ApplicationUseEvent), None)
        if use is not None and use.order is not None:
            return order_of_application(history.facts, use.order)
        ledger = ledger_of(history)
        by_queue: defaultdict[int, dict[Key, Reading]] = defaultdict(dict)
        for key, reading in ledger.readings.items():
            by_queue[key[1]][key] = reading
        read = by_queue.keys()
        turns = {queue: turn for queue in read if (turn := _turns(by_queue[queue])) is not None}
        together = read - turns.keys() if self.shared_queues == "judged" else set()
        judged = turns.keys() | together
        facts = history.facts
        shared = ", ".join(sorted(facts.queue_name(queue) for queue in read - judged))
        numbers = {
            "queues_judged": len(judged),
            "queues_shared": len(read - judged),
            "overtaken": 0,
            "overtaken_permitted": 0,
        }
        counts = Counter({queue: 0 for queue in read})
        for (_, queue, *_), reading in ledger.readings.items():
            counts[queue] += reading.count
        coverage = Coverage(sum(counts[queue] for queue in judged), counts.total(), "deliveries")
        if read and not judged:
            text = f"consumers read from {shared} at the same time, or by turns"
            return Finding(Verdict.UNKNOWN, text, numbers, coverage=coverage)
        backwards = {queue for queue in turns if any(reading.backwards for reading in by_queue[queue].values())}
        forwards = turns.keys() - backwards
        seeds = {key: highest for queue in forwards for key, highest in _seeds(by_queue[queue], turns[queue]).items()}
        suspicious = {key for key, highest in seeds.items() if _is_suspicious(ledger.readings[key], highest)}
        suspects = _suspects(history, ledger, seeds, suspicious) if suspicious else iter(())
        by_time = together | backwards
        unruly = _suspects_of_all(history, ledger, by_time) if by_time else iter(())
        found = list(_violations(history, itertools.chain(suspects, unruly)))
        violations = list(_not_of_two_sides(history, found))
        numbers["overtaken"], numbers["overtaken_permitted"] = len(violations), len(found) - len(violations)
        summary = (
            f"{counted(len(violations), 'message was', 'messages were')} overtaken in {counted(len(judged), 'queue')}"
        )
        if len(found) > len(violations):
            summary += f", and {len(found) - len(violations)} more that were taken on two sides of a split"
        if shared:
            summary += f"; not judged, as consumers read from it at the same time, or by turns: {shared}"
        examples = tuple(_line(facts, violation) for violation in violations[:EXAMPLES_MAX])
        unseen = nothing_after(history, ledger, judged) if read and not violations else ""
        if unseen:
            return Finding(Verdict.UNKNOWN, f"{unseen}; in the observed time, {summary}", numbers, (), coverage)
        return Finding(Verdict.INVALID if violations else Verdict.VALID, summary, numbers, examples, coverage)


def _turns(readings: Mapping[Key, Reading]) -> list[int] | None:
    """Return the consumers of one queue in the order of their turns; None if two of them read at the same time."""
    spans: dict[int, tuple[float, float]] = {}
    for (consumer, *_), reading in readings.items():
        first, last = spans.get(consumer, (np.inf, -np.inf))
        spans[consumer] = min(first, reading.first_us), max(last, reading.last_us)
    ordered = sorted(spans, key=spans.__getitem__)
    overlap = any(spans[a][1] > spans[b][0] for a, b in itertools.pairwise(ordered))
    return None if overlap else ordered


def _seeds(readings: Mapping[Key, Reading], turns: Sequence[int]) -> dict[Key, int]:
    """Return, for each reading of one queue, the highest sequence that earlier consumers had received."""
    seeds: dict[Key, int] = {}
    highest: dict[Key, int] = {}  # by publisher and priority
    place = {consumer: turn for turn, consumer in enumerate(turns)}
    for key in sorted(readings, key=lambda key: place[key[0]]):
        seeds[key] = highest.get(key[2:], -1)
        highest[key[2:]] = max(seeds[key], readings[key].highest)
    return seeds


def _is_suspicious(reading: Reading, seed: int) -> bool:
    return reading.overtaken > 0 or reading.lowest_fresh < seed


@dataclass(frozen=True)
class _Overtaken:
    consumer: int
    queue: int
    publisher: int
    sequence: int
    received_us: int
    highest: int


def _violations(history: History, jumps: Iterable[_Overtaken]) -> Iterator[_Overtaken]:
    """Yield the deliveries that jump back and are the first of their message, in the order of time."""
    suspects = list(itertools.islice(jumps, SUSPECTS_MAX))
    first_us = _first_received(history, suspects) if suspects else {}
    counted: set[Owed] = set()
    for suspect in sorted(suspects, key=lambda one: one.received_us):
        message = (suspect.publisher, suspect.sequence, suspect.queue)
        if suspect.received_us <= first_us.get(message, suspect.received_us) and message not in counted:
            counted.add(message)
            yield suspect


def _not_of_two_sides(history: History, found: Sequence[_Overtaken]) -> Iterator[_Overtaken]:
    """Yield the jumps back whose two messages were not taken on two sides of a split."""
    facts = history.facts
    cluster, span_us = facts.cluster, facts.publishing_us
    if cluster is None or span_us is None or not cluster.splits or not found:
        yield from found
        return
    both = [(v.publisher, sequence) for v in found for sequence in (v.sequence, v.highest)]
    table = np.array(both, np.uint64)
    taken = {
        (row["publisher"], row["sequence"]): (facts.node_name(row["node"]), row["outcome_us"])
        for row in matching(history.publishes(), messages(table[:, 0], table[:, 1]), "node", "outcome_us")
    }
    parted = {
        index: list(itertools.chain(*facts.once(splits_of, cluster, span_us, queue.placed)))
        for index, queue in enumerate(facts.queues)
        if permits_loss(cluster, queue)
    }
    for v in found:
        one, other = (taken.get((v.publisher, sequence)) for sequence in (v.sequence, v.highest))
        apart = (
            one
            and other
            and any(
                split.were_apart(one[0], other[0], (min(one[1], other[1]), max(one[1], other[1])))
                for split in parted.get(v.queue, ())
            )
        )
        if not apart:
            yield v


_COLUMNS = ("consumer", "queue", "publisher", "sequence", "received_us", "redelivered", "intact")


def _suspects(history: History, ledger: Ledger, seeds: Mapping[Key, int], keys: set[Key]) -> Iterator[_Overtaken]:
    """Yield the deliveries of the suspicious readings that jump back."""
    highest = dict(seeds)
    for *keyed, sequence, received_us, redelivered, intact in pieces(history.deliveries(), *_COLUMNS):
        for key, rows in grouped(*keyed, ledger.in_order.groups(keyed[-1], sequence)):
            if key not in keys:
                continue
            whole = intact[rows]
            mine, mine_us, again = (column[rows][whole] for column in (sequence, received_us, redelivered))
            if not len(mine):
                continue
            before = highest_before(mine, highest[key])
            highest[key] = max(int(before[-1]), int(mine[-1]))
            consumer, queue, publisher, _ = key
            for row in _jumps_back(ledger.messages[publisher], mine, before, again):
                yield _Overtaken(consumer, queue, publisher, int(mine[row]), int(mine_us[row]), int(before[row]))


def _suspects_of_all(history: History, ledger: Ledger, queues: set[int]) -> Iterator[_Overtaken]:
    """Yield the jumps back in queues that consumers share, as if one consumer had received everything, and in queues
    that were not read in the order of time. Their deliveries must be sorted, so each pass takes only some queues."""
    counts: Counter[int] = Counter()
    for (_, queue, *_), reading in ledger.readings.items():
        counts[queue] += reading.count
    taken: list[int] = []
    for queue in sorted(queues):
        if taken and sum(counts[one] for one in taken) + counts[queue] > SORTED_MAX:
            yield from _suspects_of(history, ledger, taken)
            taken = []
        taken.append(queue)
    yield from _suspects_of(history, ledger, taken)


def _suspects_of(history: History, ledger: Ledger, queues: Sequence[int]) -> Iterator[_Overtaken]:
    found = [
        [column[np.isin(piece[1], queues) & piece[-1]] for column in piece[:-1]]
        for piece in pieces(history.deliveries(), *_COLUMNS)
    ]
    columns = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    for (in_queue, name, _), rows in grouped(columns[1], columns[2], ledger.in_order.groups(columns[2], columns[3])):
        consumer, _, _, sequence, received_us, redelivered = (column[rows] for column in columns)
        by_time = np.argsort(received_us, kind="stable")
        mine, mine_us = sequence[by_time], received_us[by_time]
        before = highest_before(mine, -1)
        for row in _jumps_back(ledger.messages[name], mine, before, redelivered[by_time]):
            reader = int(consumer[by_time[row]])
            yield _Overtaken(reader, in_queue, name, int(mine[row]), int(mine_us[row]), int(before[row]))


def _jumps_back(messages: Messages, sequence: Array, before: Array, redelivered: Array) -> list[int]:
    """Return the rows of deliveries that come after a higher sequence, and may not."""
    back = np.flatnonzero((sequence < before) & ~redelivered)
    rows: list[int] = back[_was_confirmed(messages, sequence[back])].tolist()
    return rows


def _was_confirmed(messages: Messages, sequence: Array) -> Array:
    inside = sequence < len(messages.outcome)
    outcome = np.full(len(sequence), Outcome.UNKNOWN, np.uint8)
    outcome[inside] = messages.outcome[sequence[inside]]
    confirmed: Array = outcome == Outcome.CONFIRMED
    return confirmed


def _first_received(history: History, suspects: list[_Overtaken]) -> dict[Owed, int]:
    """Return when each suspect's message was first received from its queue, by any consumer."""
    table = np.array([(s.publisher, s.sequence) for s in suspects], np.uint64).reshape(-1, 2)
    wanted = np.unique(messages(table[:, 0], table[:, 1]))
    first: dict[Owed, int] = {}
    columns = ("publisher", "sequence", "queue", "received_us", "intact")
    for *piece, intact in pieces(history.deliveries(), *columns):
        hit = np.isin(messages(*piece[:2]), wanted) & intact
        for *key, received_us in zip(*(column[hit].tolist() for column in piece), strict=True):
            publisher, sequence, queue = key
            owed = (publisher, sequence, queue)
            first[owed] = min(first.get(owed, received_us), received_us)
    return first


def _line(facts: Facts, overtaken: _Overtaken) -> str:
    return (
        f"publisher {overtaken.publisher} sequence {overtaken.sequence} came out of "
        f"{facts.queue_name(overtaken.queue)} at {facts.at(overtaken.received_us)} to consumer {overtaken.consumer}, "
        f"after sequence {overtaken.highest}, phase {facts.phase_at(overtaken.received_us)}, "
        f"{facts.faults_during(overtaken.received_us, overtaken.received_us)}"
    )
