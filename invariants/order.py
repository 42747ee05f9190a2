"""Messages of one publisher in one queue arrive in the order in which they were published."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from invariants.columns import Array, grouped, messages, pieces
from invariants.facts import Facts
from invariants.ledger import Ledger, Messages, Reading, highest_before, ledger_of
from invariants.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Verdict
from reports.history import Outcome

#: Deliveries that are looked at one by one; beyond, a violation is certain and its exact size is not worth the memory.
SUSPECTS_MAX = 1_000_000

#: Consumer, queue, publisher.
Key = tuple[int, ...]


class Order(InvariantSpec):
    """A delivery jumps back if its publisher's higher sequence arrived from that queue before it. Illegal, unless

    - it is marked as redelivered, or is a duplicate of a message received earlier;
    - its publish has no known outcome: it may have waited in a lost connection while the publisher went on over a
      new one, and the order is promised within one channel only.

    A queue is judged if at most one consumer at a time read from it: one that reconnects remains the same, and
    several are fine if the last delivery to one is before the first to the next. Others are named, unless
    ``shared_queues: judged`` demands of them too what no broker promises: then the time of receipt tells the order,
    whoever received. With deliveries and no queue to judge the finding is UNKNOWN; without deliveries there was no
    disorder.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"watched"})

    shared_queues: Literal["named", "judged"] = "named"

    def check(self, history: History) -> Finding:
        ledger = ledger_of(history)
        read = {queue for _, queue, _ in ledger.readings}
        turns = {queue: turn for queue in read if (turn := _turns(ledger, queue)) is not None}
        together = read - turns.keys() if self.shared_queues == "judged" else set()
        judged = turns.keys() | together
        facts = Facts(history.events)
        shared = ", ".join(sorted(facts.queue_name(queue) for queue in read - judged))
        numbers = {"queues_judged": len(judged), "queues_shared": len(read - judged), "overtaken": 0}
        if read and not judged:
            return Finding(Verdict.UNKNOWN, f"more than one consumer at a time read from {shared}", numbers)
        seeds = {key: highest for queue in turns for key, highest in _seeds(ledger, queue, turns[queue]).items()}
        suspicious = {key for key, highest in seeds.items() if _is_suspicious(ledger.readings[key], highest)}
        suspects = _suspects(history, ledger, seeds, suspicious) if suspicious else iter(())
        unruly = _suspects_of_all(history, ledger, together) if together else iter(())
        violations = list(_violations(history, itertools.chain(suspects, unruly)))
        numbers["overtaken"] = len(violations)
        summary = f"{len(violations)} messages were overtaken in {len(judged)} queues"
        if shared:
            summary += f"; not judged, for more than one consumer at a time read from it: {shared}"
        examples = tuple(_line(facts, violation) for violation in violations[:EXAMPLES_MAX])
        return Finding(Verdict.INVALID if violations else Verdict.VALID, summary, numbers, examples)


def _turns(ledger: Ledger, queue: int) -> list[int] | None:
    """The consumers of ``queue`` in the order of their turns; None if two of them read at the same time."""
    spans: dict[int, tuple[float, float]] = {}
    for (consumer, its_queue, _), reading in ledger.readings.items():
        if its_queue == queue:
            first, last = spans.get(consumer, (np.inf, -np.inf))
            spans[consumer] = min(first, reading.first_us), max(last, reading.last_us)
    ordered = sorted(spans, key=spans.__getitem__)
    overlap = any(spans[a][1] > spans[b][0] for a, b in itertools.pairwise(ordered))
    return None if overlap else ordered


def _seeds(ledger: Ledger, queue: int, turns: list[int]) -> dict[Key, int]:
    """For each reading of ``queue`` the highest sequence that consumers before it had received."""
    seeds: dict[Key, int] = {}
    highest: dict[int, int] = {}
    for consumer in turns:
        for key, reading in ledger.readings.items():
            if key[:2] == (consumer, queue):
                seeds[key] = highest.get(key[2], -1)
                highest[key[2]] = max(seeds[key], reading.highest)
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
    """Those deliveries that jump back and are the first of their message."""
    suspects = list(itertools.islice(jumps, SUSPECTS_MAX))
    first_us = _first_received(history, suspects) if suspects else {}
    seen: set[tuple[int, int]] = set()
    for suspect in suspects:
        message = (suspect.publisher, suspect.sequence)
        if suspect.received_us <= first_us.get(message, suspect.received_us) and message not in seen:
            yield suspect
        seen.add(message)


_COLUMNS = ("consumer", "queue", "publisher", "sequence", "received_us", "redelivered", "intact")


def _suspects(history: History, ledger: Ledger, seeds: Mapping[Key, int], keys: set[Key]) -> Iterator[_Overtaken]:
    """Look at the suspicious readings again, delivery by delivery where one jumps back."""
    highest = dict(seeds)
    for *keyed, sequence, received_us, redelivered, intact in pieces(history.deliveries(), *_COLUMNS):
        for key, rows in grouped(*keyed):
            if key not in keys:
                continue
            whole = intact[rows]
            mine, mine_us, again = (column[rows][whole] for column in (sequence, received_us, redelivered))
            if not len(mine):
                continue
            before = highest_before(mine, highest[key])
            highest[key] = max(int(before[-1]), int(mine[-1]))
            consumer, queue, publisher = key
            for row in _jumps_back(ledger.messages[publisher], mine, before, again):
                yield _Overtaken(consumer, queue, publisher, int(mine[row]), int(mine_us[row]), int(before[row]))


def _suspects_of_all(history: History, ledger: Ledger, queues: set[int]) -> Iterator[_Overtaken]:
    """The same for queues that consumers share, as if one had received what all of them did."""
    found = [
        [column[np.isin(piece[1], list(queues)) & piece[-1]] for column in piece]
        for piece in pieces(history.deliveries(), *_COLUMNS)
    ]
    columns = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    by_time = np.argsort(columns[4], kind="stable")
    consumer, queue, publisher, sequence, received_us, redelivered, _ = (column[by_time] for column in columns)
    for (in_queue, name), rows in grouped(queue, publisher):
        mine, mine_us, readers = sequence[rows], received_us[rows], consumer[rows]
        before = highest_before(mine, -1)
        for row in _jumps_back(ledger.messages[name], mine, before, redelivered[rows]):
            yield _Overtaken(int(readers[row]), in_queue, name, int(mine[row]), int(mine_us[row]), int(before[row]))


def _jumps_back(messages: Messages, sequence: Array, before: Array, redelivered: Array) -> list[int]:
    """The rows of deliveries that come after a higher sequence, and may not."""
    back = np.flatnonzero((sequence < before) & ~redelivered)
    rows: list[int] = back[_was_confirmed(messages, sequence[back])].tolist()
    return rows


def _was_confirmed(messages: Messages, sequence: Array) -> Array:
    inside = sequence < len(messages.outcome)
    outcome = np.full(len(sequence), Outcome.UNKNOWN, np.uint8)
    outcome[inside] = messages.outcome[sequence[inside]]
    confirmed: Array = outcome == Outcome.CONFIRMED
    return confirmed


def _first_received(history: History, suspects: list[_Overtaken]) -> dict[tuple[int, int], int]:
    """When each suspect's message was received for the first time, by whomever."""
    table = np.array([(s.publisher, s.sequence) for s in suspects], np.uint64).reshape(-1, 2)
    wanted = np.unique(messages(table[:, 0], table[:, 1]))
    first = np.full(len(wanted), np.iinfo(np.int64).max)
    if len(wanted):
        columns = ("publisher", "sequence", "received_us", "intact")
        for publisher, sequence, received_us, intact in pieces(history.deliveries(), *columns):
            found = messages(publisher, sequence)
            place = np.searchsorted(wanted, found).clip(max=len(wanted) - 1)
            hit = (wanted[place] == found) & intact
            np.minimum.at(first, place[hit], received_us[hit])
    return {(int(m) >> 32, int(m) & 0xFFFFFFFF): int(t) for m, t in zip(wanted, first, strict=True)}


def _line(facts: Facts, overtaken: _Overtaken) -> str:
    return (
        f"publisher {overtaken.publisher} sequence {overtaken.sequence} came out of "
        f"{facts.queue_name(overtaken.queue)} at {facts.at(overtaken.received_us)} to consumer {overtaken.consumer}, "
        f"after sequence {overtaken.highest}, phase {facts.phase_at(overtaken.received_us)}, "
        f"{facts.beside(overtaken.received_us, overtaken.received_us)}"
    )
