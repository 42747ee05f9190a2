"""Find a queue's own messages: they go to no other queue that stands still, so they must be confirmed meanwhile.

A channel takes no further message while ``quorum_commands_soft_limit`` of those that it sent to one quorum queue, 32 by
default, are not applied. So a message was taken if fewer were under way when it came.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.columns import Array, grouped, messages, pieces
from rabbitmq_resilience.checkers.times import Period, Times, periods
from rabbitmq_resilience.checkers.traffic import TICK_US
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.history import Outcome

TAKEN_MAX = 32

_COLUMNS = ("publisher", "sequence", "queue", "sent_us", "outcome_us")


@dataclass(frozen=True, eq=False)
class OwnMessages:
    """The own messages of queues. ``of_queue``: by queue, when each message was sent, and when it was answered or given
    up, in us."""

    of_queue: Mapping[int, tuple[Array, Array]]

    @classmethod
    def of(cls, history: History, lacking: Mapping[int, Times]) -> OwnMessages:
        """Read the own messages. ``lacking``: when each queue that shares messages may stand still."""
        spans = [period for times in lacking.values() for period in periods(times)]
        if not spans:
            return cls({})
        rows = _under_way(history, spans)
        key = messages(rows["publisher"], rows["sequence"].astype(np.uint64))
        held = np.zeros(len(key), np.bool_)
        for (queue,), mine in grouped(rows["queue"]) if len(key) else ():
            for period in periods(lacking[queue]) if queue in lacking else ():
                held[mine] |= _overlaps(rows["sent_us"][mine], rows["outcome_us"][mine], period)
        own = ~np.isin(key, key[held]) & (_ahead(rows, key, held) < TAKEN_MAX)
        kept = {name: column[own] for name, column in rows.items()}
        groups = grouped(kept["queue"]) if own.any() else ()
        return cls({queue: (kept["sent_us"][mine], kept["outcome_us"][mine]) for (queue,), mine in groups})

    def stalls(self, queue: int, within: Period, confirms_us: Array, *, over_us: float) -> Iterator[Period]:
        """Yield the times longer than ``over_us`` in which the queue confirmed nothing, while own messages waited or
        were refused or given up. ``confirms_us`` is in the order of time."""
        sent_us, answered_us = self.of_queue.get(queue, (np.zeros(0), np.zeros(0)))
        edges = [within[0], *confirms_us[(confirms_us > within[0]) & (confirms_us < within[1])], within[1]]
        for start, end in itertools.pairwise(edges) if len(sent_us) else ():
            if end - start > over_us:
                tried = (sent_us < end) & (answered_us > start + TICK_US)
                if tried.any():
                    since = max(start, float(sent_us[tried].min()))
                    until = min(end, float(answered_us[tried].max()))
                    if until - since > over_us:
                        yield since, until


def _under_way(history: History, spans: Sequence[Period]) -> dict[str, Array]:
    """Return the rows of sent messages that were under way in any of the periods, by column name."""
    found = [tuple(np.zeros(0, np.int64) for _ in _COLUMNS)]
    for *columns, outcome in pieces(history.publishes(), *_COLUMNS, "outcome"):
        kept = np.zeros(len(outcome), np.bool_)
        for span in spans:
            kept |= _overlaps(columns[3], columns[4], span)
        kept &= outcome != Outcome.NEVER_SENT
        found.append(tuple(column[kept].astype(np.int64) for column in columns))
    return {name: np.concatenate(parts) for name, parts in zip(_COLUMNS, zip(*found, strict=True), strict=True)}


def _overlaps(sent_us: Array, answered_us: Array, period: Period) -> npt.NDArray[np.bool_]:
    overlaps: npt.NDArray[np.bool_] = (sent_us < period[1]) & (answered_us > period[0])
    return overlaps


def _ahead(rows: Mapping[str, Array], key: Array, held: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return for each row how many ``held`` messages of its publisher were under way when it was sent."""
    ahead = np.zeros(len(key), np.int64)
    once = np.flatnonzero(held)[np.unique(key[held], return_index=True)[1]]
    for (publisher,), mine in grouped(rows["publisher"]) if len(key) else ():
        theirs = once[rows["publisher"][once] == publisher]
        sent_us, answered_us = np.sort(rows["sent_us"][theirs]), np.sort(rows["outcome_us"][theirs])
        at_us = rows["sent_us"][mine]
        ahead[mine] = np.searchsorted(sent_us, at_us, "right") - np.searchsorted(answered_us, at_us, "right")
    return ahead
