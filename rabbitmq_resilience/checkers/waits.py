"""Compute how long each message took: from when it was due, and from when it was sent, to its confirm or its receipt.

A publisher that stalls sends less, so a stall would hide itself (coordinated omission). So messages that its schedule
had meanwhile count as well: each is taken as sent and answered together with the first message after the stall.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.columns import Array, grouped, pieces
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fan_out import Shards
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.events import LoadEvent, WorkerEvent
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.history.variation import Variation

#: A publisher that is connected, not blocked, and has room in flight sends due messages within this time. If it does
#: not, this machine does not hold the load. If thousands of publishers share a process, each has its turn every 130 ms.
LAGS_US = 200_000
#: An undisturbed publisher, at any rate, has a message due within this time from the start of the steady phase on, and
#: sends its last message at most this long before the end of publishing.
EDGES_US = 1_000_000
#: The part of all messages that may be late because their publisher lagged. If there are more, the load was not the
#: stated one.
LAGGED_MAX = 0.01
NOT_HELD = "this machine does not hold the load"
_GONE = ("connection_lost", "killed", "stopped", "hung")
_NAMES = ("sequence", "lane", "queue", "due_us", "sent_us", "outcome", "outcome_us")

Moments = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: The moment of an event that never came.
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Waits:
    """One row for each message, or for each message and queue.

    The rows have when the message was due, sent and answered (NEVER: it was not). ``lagged``: the message was late
    because the publisher itself lagged. ``omitted``: the schedule had the message, and it was never sent. Omitted
    messages count for how long messages took, and not for how many messages there were.
    """

    due_us: Moments
    sent_us: Moments
    answered_us: Moments
    lagged: Flags
    omitted: Flags

    @classmethod
    def together(cls, parts: list[Waits]) -> Waits:
        columns = {each.name: [getattr(part, each.name) for part in parts] for each in fields(cls)}
        kinds = {name: np.bool_ if name in ("lagged", "omitted") else np.int64 for name in columns}
        nothing: dict[str, Array] = {name: np.zeros(0, kind) for name, kind in kinds.items()}
        return cls(**{name: np.concatenate([nothing[name], *of]) for name, of in columns.items()})

    def chosen(self, rows: Array) -> Waits:
        return Waits(*(getattr(self, each.name)[rows] for each in fields(self)))

    def due_within(self, start_us: float, end_us: float) -> Waits:
        return self.chosen((self.due_us >= start_us) & (self.due_us < end_us))

    def sent_within(self, start_us: float, end_us: float) -> Waits:
        """Return the rows that were sent in that time. Omitted messages were not sent and are left out."""
        return self.chosen((self.sent_us >= start_us) & (self.sent_us < end_us) & ~self.omitted)

    @property
    def lagged_ratio(self) -> float:
        return float(self.lagged.mean()) if len(self) else 0.0

    def __len__(self) -> int:
        return len(self.due_us)


def confirm_waits(history: History) -> Waits:
    """Return the waits for confirms of all messages that were sent, except messages that no queue took. Refused
    messages and messages with unknown outcome count as never confirmed."""
    parts, rows = [], sent_rows(history)
    for publisher, sent in rows.items():
        first = {name: column[_is_first(sent)] for name, column in sent.items()}
        answered_us = np.where(first["outcome"] == Outcome.CONFIRMED, first["outcome_us"], NEVER)
        waits = _waits(history.facts, publisher, first, answered_us)
        unsent = _unsent(history.facts, publisher, first, answered_us, of=len(rows))
        parts += [waits.chosen(first["outcome"] != Outcome.RETURNED), unsent]
    return Waits.together([*parts, *_given_up(history, of=len(rows))])


def publishers_recorded(facts: Facts) -> bool:
    """Return whether the record says how many publishers shared the load."""
    return all(load.publishers for load in facts.of_kind(LoadEvent))


def delivery_waits(history: History) -> Waits:
    """Return the waits for deliveries of each message and queue, except messages that no queue took."""
    sent = sent_rows(history)
    parts = []
    for publisher, received_us in first_received(history, sent).items():
        rows = sent[publisher]
        counted = (received_us != NEVER) | (rows["outcome"] != Outcome.RETURNED)
        waits, first = _waits(history.facts, publisher, rows, received_us), _is_first(rows)
        of_messages = {name: column[first] for name, column in rows.items()}
        parts += [
            waits.chosen(counted),
            _unsent(history.facts, publisher, of_messages, received_us[first], of=len(sent)),
        ]
    return Waits.together([*parts, *_given_up(history, of=len(sent))])


def sent_rows(history: History) -> Mapping[int, Mapping[str, Array]]:
    """Return the rows of what each publisher sent, by sequence and lane."""
    parts: dict[int, list[list[Array]]] = {}
    for publisher, *columns in pieces(history.publishes(), "publisher", *_NAMES):
        sent = columns[_NAMES.index("outcome")] != Outcome.NEVER_SENT
        for (index,), rows in grouped(publisher[sent]) if sent.any() else ():
            parts.setdefault(index, []).append([column[sent][rows] for column in columns])
    ordered = {}
    for index, of_one in parts.items():
        columns = [np.concatenate(column) for column in zip(*of_one, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        ordered[index] = dict(zip(_NAMES, (column[order] for column in columns), strict=True))
    return ordered


def _is_first(rows: Mapping[str, Array]) -> Flags:
    """Return which rows of a publisher stand for a message, one row for each message. The rows are in the order of
    sequences."""
    first: Flags = np.diff(rows["sequence"], prepend=-1) != 0
    return first


def first_received(history: History, sent: Mapping[int, Mapping[str, Array]]) -> Mapping[int, Moments]:
    """Return for each row when the message first came from that queue, or from another shard of it."""
    shards = Shards.of(history.facts)
    first = {publisher: np.full(len(rows["sequence"]), NEVER, np.int64) for publisher, rows in sent.items()}
    keys = {publisher: _key(rows["sequence"], shards.first(rows["queue"])) for publisher, rows in sent.items()}
    orders = {publisher: np.argsort(key, kind="stable") for publisher, key in keys.items()}
    names = ("publisher", "queue", "sequence", "received_us", "intact")
    for publisher, queue, sequence, received_us, intact in pieces(history.deliveries(), *names):
        for (index,), rows in grouped(publisher):
            if index in first:
                wanted, order = _key(sequence[rows], shards.first(queue[rows])), orders[index]
                ordered = keys[index][order]
                places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
                there = (ordered[places] == wanted) & intact[rows]
                np.minimum.at(first[index], order[places[there]], received_us[rows][there])
    return first


def _key(sequence: Array, queue: Array) -> npt.NDArray[np.uint64]:
    return sequence.astype(np.uint64) << np.uint64(32) | queue.astype(np.uint64)


def _waits(facts: Facts, publisher: int, rows: Mapping[str, Array], answered_us: Moments) -> Waits:
    omitted = np.zeros(len(answered_us), np.bool_)
    return Waits(rows["due_us"], rows["sent_us"], answered_us, _lagged(facts, publisher, rows), omitted)


def _lagged(facts: Facts, publisher: int, rows: Mapping[str, Array]) -> Flags:
    """Return which messages were late because their publisher lagged.

    These are messages that their publisher left unsent for ``LAGS_US`` while they were due and there was room in flight
    for them and all messages before them. Late messages that were due while such a message waited lagged behind it, and
    count too.
    """
    late: Flags = rows["sent_us"] - rows["due_us"] > LAGS_US
    if not late.any():
        return late
    ready_us = _ready_us(facts, publisher, rows["due_us"], rows["sent_us"], _room_us(facts, rows))
    lay: Flags = rows["sent_us"] - LAGS_US > ready_us
    if not lay.any():
        return lay
    next_lay = np.minimum(np.searchsorted(rows["sent_us"][lay], rows["due_us"]), np.count_nonzero(lay) - 1)
    behind = (ready_us[lay][next_lay] <= rows["due_us"]) & (rows["due_us"] <= rows["sent_us"][lay][next_lay])
    return lay | (late & behind)


def _room_us(facts: Facts, rows: Mapping[str, Array]) -> Moments:
    """Return from when on there was room in flight for each of a publisher's rows; NEVER if that is not recorded."""
    load = next(facts.of_kind(LoadEvent), None)
    if load is None or load.in_flight is None:
        return np.full(len(rows["due_us"]), NEVER, np.int64)
    of_messages = _is_first(rows)
    makes_room = np.cumsum(of_messages) - 1 - load.in_flight  # the place of the answer that makes room
    answered_us = np.sort(rows["outcome_us"][of_messages])
    return np.where(makes_room >= 0, answered_us[np.maximum(makes_room, 0)], 0)


def _ready_us(facts: Facts, publisher: int, due_us: Moments, sent_us: Moments, room_us: Moments) -> Moments:
    """Return from when on a publisher could have sent the messages that were due and sent at these moments."""
    ready_us = np.maximum(due_us, room_us)
    for start_us, end_us in kept_us(facts, f"publisher-{publisher}"):
        ready_us[(ready_us < end_us) & (start_us <= sent_us - LAGS_US)] = min(end_us, NEVER)
    return ready_us


def kept_us(facts: Facts, worker: str) -> Iterator[Period]:
    """Yield the periods in which a worker could not work: without a connection, or blocked by the broker."""
    since: dict[str, float] = {"connection": -NEVER_US}
    for event in facts.of_kind(WorkerEvent):
        if event.worker != worker:
            continue
        if event.event == "connected" and "connection" in since:
            yield since.pop("connection"), event.t_us
        elif event.event == "blocked":
            since.setdefault("block", event.t_us)
        elif "block" in since:  # unblocked, or its connection or process is gone
            yield since.pop("block"), event.t_us
        if event.event in _GONE:
            since.setdefault("connection", event.t_us)
    yield from ((start_us, NEVER_US) for start_us in since.values())


def _unsent(facts: Facts, publisher: int, rows: Mapping[str, Array], answered_us: Moments, *, of: int) -> Waits:
    """Return the messages that the schedule had before the first message of one publisher, and between its messages.
    ``rows`` has one row for each message, in the order of sequences. ``of``: how many publishers sent something; it is
    used if the number of publishers is not recorded."""
    load = next(facts.of_kind(LoadEvent), None)
    if load is None:
        return Waits.together([])
    publishers = load.publishers or max(of, 1)
    shortest_us = 1e6 * publishers / max(_limits(load.rate), default=np.inf)
    parts: list[Moments] = [np.zeros(0, np.int64)]
    after: list[Moments] = [np.zeros(0, np.int64)]
    first_us = int(rows["due_us"][0])
    begins_us = first_us if facts.publishing_us is None else facts.publishing_us[0] + EDGES_US
    edges_us = np.concatenate(([min(begins_us, first_us)], rows["due_us"]))
    for place in np.flatnonzero(np.diff(edges_us) > 1.5 * shortest_us).tolist():
        parts.append(_scheduled(load.rate, publishers, int(edges_us[place]), int(edges_us[place + 1])))
        after.append(np.full(len(parts[-1]), place, np.int64))
    due_us, next_row = np.concatenate(parts), np.concatenate(after)
    if not len(due_us):
        return Waits.together([])
    sent_us = rows["sent_us"][next_row]
    ready_us = _ready_us(facts, publisher, due_us, sent_us, _room_us(facts, rows)[next_row])
    omitted = np.ones(len(due_us), np.bool_)
    return Waits(due_us, sent_us, answered_us[next_row], sent_us - LAGS_US > ready_us, omitted)


def _given_up(history: History, *, of: int) -> Iterator[Waits]:
    """Yield the messages that the schedule had from a publisher's last message to the end of publishing."""
    facts = history.facts
    load, span_us = next(facts.of_kind(LoadEvent), None), facts.publishing_us
    if load is None or span_us is None:
        return
    publishers = load.publishers or max(of, 1)
    last_us = dict.fromkeys(range(load.publishers or 0), span_us[0])
    for publisher, due_us in pieces(history.publishes(), "publisher", "due_us"):
        for (index,), rows in grouped(publisher):
            last_us[index] = max(last_us.get(index, 0), int(due_us[rows].max()))
    for start_us in last_us.values():
        due = _scheduled(load.rate, publishers, start_us, span_us[1] - EDGES_US)
        never = np.full(len(due), NEVER, np.int64)
        yield Waits(due, due, never, np.zeros(len(due), np.bool_), np.ones(len(due), np.bool_))


def _limits(rate: Variation) -> list[float]:
    return [value for value in (rate.plain, *(value for value, _ in rate.steps)) if value]


def _scheduled(rate: Variation, publishers: int, start_us: int, end_us: int) -> Moments:
    """Return when one publisher's messages were due between two of its messages. They are at equal distances, from the
    first message on and from each change of the rate on. A message that would, except for rounding, coincide with the
    second message is that message."""
    moments = [np.zeros(0, np.int64)]
    if end_us <= start_us:
        return moments[0]
    for begins_us, ends_us, per_s in rate.pieces(start_us, end_us):
        if per_s:
            every_us = 1e6 * publishers / per_s
            count = max(0, int((ends_us - begins_us) / every_us - (0.5 if ends_us == end_us else 0)))
            moments.append((begins_us + every_us * np.arange(1, count + 1)).astype(np.int64))
    return np.concatenate(moments)
