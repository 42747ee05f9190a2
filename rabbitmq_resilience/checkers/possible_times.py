"""Find times that no run can have.

These are answers before their messages, receipts before the sending, and many receipts at one moment. All workers of a
run read one monotonic clock. So such times show that a record was damaged, or put together from two records. A tap
reads many messages of an application at one moment.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.columns import Array, grouped, pieces
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.events import ApplicationUseEvent
from rabbitmq_resilience.history.history import Outcome

#: A consumer reads the clock for each message, and needs some microseconds for each one.
AT_ONE_MOMENT_MAX = 10

_ANSWERS = (Outcome.CONFIRMED, Outcome.NACKED, Outcome.RETURNED)
#: When each message was sent, in milliseconds since the first event; by publisher, then by sequence. There may be tens
#: of millions of messages.
Sent = dict[int, npt.NDArray[np.uint32]]


def impossible_times(history: History) -> Iterator[str]:
    """Yield a line for people for each kind of impossible time, with the first message of that kind."""
    sent: Sent = {}
    yield from _of_publishes(history, sent)
    yield from _of_deliveries(history, sent)


def _of_publishes(history: History, sent: Sent) -> Iterator[str]:
    """Yield a line if answers came too early, and note in ``sent`` when messages were sent."""
    found = _CountedKind(history.facts, "were answered before they were sent")
    for publisher, sequence, *rest in pieces(
        history.publishes(), "publisher", "sequence", "sent_us", "outcome", "outcome_us"
    ):
        sent_us, outcome, outcome_us = rest
        found.enter(np.isin(outcome, _ANSWERS) & (outcome_us < sent_us), publisher, sequence, outcome_us)
        was_sent = outcome != Outcome.NEVER_SENT
        for (name,), rows in grouped(publisher[was_sent]) if was_sent.any() else ():
            sent_ms = _since_ms(history.facts, sent_us[was_sent][rows])
            _note(sent, name, sequence[was_sent][rows], sent_ms)
    yield from found.lines()


def _since_ms(facts: Facts, t_us: Array) -> npt.NDArray[np.uint32]:
    since_ms: npt.NDArray[np.uint32] = (np.maximum(t_us - facts.origin_us, 0) // 1000).astype(np.uint32)
    return since_ms


def _note(sent: Sent, publisher: int, sequence: Array, sent_ms: npt.NDArray[np.uint32]) -> None:
    known = sent.get(publisher, np.zeros(0, np.uint32))
    size = int(sequence.max()) + 1
    if size > len(known):
        known = np.concatenate((known, np.zeros(max(size, len(known) * 5 // 4) - len(known), np.uint32)))
    known[sequence] = sent_ms
    sent[publisher] = known


def _of_deliveries(history: History, sent: Sent) -> Iterator[str]:
    early = _CountedKind(history.facts, "were received before they were sent")
    # A tap reads the clock once for all that comes together.
    reads_clock = next(history.facts.of_kind(ApplicationUseEvent), None) is None
    at_once = _CountedKind(history.facts, f"came to their consumers over {AT_ONE_MOMENT_MAX} at one microsecond")
    for consumer, publisher, sequence, received_us, intact in pieces(
        history.deliveries(), "consumer", "publisher", "sequence", "received_us", "intact"
    ):
        for (name,), rows in grouped(publisher):
            known = sent.get(name, np.zeros(0, np.uint32))
            mine, at_us = sequence[rows], received_us[rows]
            there = intact[rows] & (mine < len(known))
            before = np.zeros(len(mine), np.bool_)
            before[there] = _since_ms(history.facts, at_us[there]) < known[mine[there]]
            early.enter(before, publisher[rows], mine, at_us)
        for _, rows in grouped(consumer) if reads_clock else ():
            at_us = received_us[rows]
            at_once.enter(_crowded(at_us), publisher[rows], sequence[rows], at_us)
    yield from early.lines()
    yield from at_once.lines()


def _crowded(at_us: Array) -> npt.NDArray[np.bool_]:
    """Return for each moment whether it occurs too often in a row."""
    edges = np.flatnonzero(np.diff(at_us)) + 1
    lengths = np.diff(np.concatenate(([0], edges, [len(at_us)])))
    return np.repeat(lengths > AT_ONE_MOMENT_MAX, lengths)


class _CountedKind:
    """The count of messages with one kind of impossible time, and the first of them."""

    def __init__(self, facts: Facts, problem: str) -> None:
        self._facts = facts
        self._problem = problem
        self._count = 0
        self._first = ""

    def enter(self, wrong: npt.NDArray[np.bool_], publisher: Array, sequence: Array, at_us: Array) -> None:
        """Count the rows that are ``wrong``."""
        if not wrong.any():
            return
        if not self._count:
            row = int(np.flatnonzero(wrong)[0])
            self._first = f"publisher {publisher[row]} sequence {sequence[row]}, at {self._facts.at(int(at_us[row]))}"
        self._count += int(np.count_nonzero(wrong))

    def lines(self) -> Iterator[str]:
        """Yield one line if any row was wrong."""
        if self._count:
            yield f"{counted(self._count, 'message')} {self._problem}, which cannot be; the first is {self._first}"
