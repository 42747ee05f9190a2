"""Find queues that keep their messages: some are ready, the consumers are connected and hold none, none arrives."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rabbitmq_resilience.checkers.application_connections import connections_of
from rabbitmq_resilience.checkers.columns import Array, pieces
from rabbitmq_resilience.checkers.consumers_connected import connected_us
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import gaps
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.times import Period, Times, periods, times
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.events import ApplicationUseEvent, LoadEvent, SampleEvent

#: On a busy machine a broker or a client may be slow for seconds, but not for as long as this.
STARVED_S = 30.0


def starved(history: History, span_us: Period, *, perhaps: bool = False) -> Mapping[str, Sequence[Period]]:
    """Return, for each queue that delivered nothing for too long, when that was.

    Too long is ``STARVED_S`` and the time that a consumer takes for a message. In that time each sample has ready
    messages in the queue and no unacknowledged ones, and all consumers that ever got something from the queue are
    connected (all consumers, if none did); or the user's application has a consumer of the queue. Queues that are read
    only at the drain count from then on. With ``perhaps`` a sample without these numbers counts too.
    """
    facts = history.facts
    least_s = STARVED_S + _processing_s(facts)
    whole = times([span_us])
    drained = times([(facts.phases.get("drain", NEVER_US), NEVER_US)])
    names = {index: queue.name for index, queue in enumerate(facts.queues)}
    could = _could_deliver(facts, least_s, perhaps=perhaps)
    consumed = _consumed(history) if could else _never
    unread = facts.read_at_drain
    suspects = {
        index: _lasting(times(could[name]) & consumed(name) & (whole & drained if name in unread else whole), least_s)
        for index, name in names.items()
        if name in could
    }
    suspects = {index: spans for index, spans in suspects.items() if spans}
    arrived_us = _arrivals(history, suspects)
    found = {
        names[index]: [gap for span in spans for gap in gaps(arrived_us[index].tolist(), span, longer_than_s=least_s)]
        for index, spans in suspects.items()
    }
    return {name: silences for name, silences in found.items() if silences}


def _could_deliver(facts: Facts, least_s: float, *, perhaps: bool) -> Mapping[str, Sequence[Period]]:
    """Return, for each queue, the unbroken rows of samples with ready messages and none that consumers hold, from the
    first to the last sample of each row, if that is long enough. One pass serves all queues, as there may be
    thousands."""
    found: dict[str, list[Period]] = {}
    rows: dict[str, Period] = {}
    for sample in itertools.chain(facts.of_kind(SampleEvent), [None]):
        seen = sample.queues if sample is not None else {}
        now = {name for name, row in seen.items() if _keeps(row, perhaps=perhaps)}
        for name in rows.keys() - now:
            start, end = rows.pop(name)
            if end - start >= least_s * 1e6:
                found.setdefault(name, []).append((start, end))
        if sample is not None:
            rows |= {name: (rows.get(name, (sample.t_us, 0))[0], sample.t_us) for name in now}
    return found


def _keeps(row: Mapping[str, Any], *, perhaps: bool) -> bool:
    """Return whether a sample of a queue has ready messages and none that consumers hold."""
    ready, unacked = row.get("ready"), row.get("unacked")
    return bool(ready or (perhaps and ready is None)) and (unacked == 0 or (perhaps and unacked is None))


def _never(_: str) -> Times:
    return times([])


def _consumed(history: History) -> Callable[[str], Times]:
    """Return what gives, for a queue, the times in which its consumers were there. Those of an application are known by
    their subscriptions: a process that is connected need not consume."""
    facts = history.facts
    if any(facts.of_kind(ApplicationUseEvent)):
        consumers = [consumer for connection in connections_of(facts) for consumer in connection.consumers]
        return lambda queue: times((each.from_us, each.to_us) for each in consumers if each.queue == queue)
    connected = {consumer: times(spans) for consumer, spans in connected_us(facts).items()}
    readers = _readers(history)
    everyone = frozenset(connected)

    @functools.cache
    def together(consumers: frozenset[int]) -> Times:
        of_each = [connected.get(consumer, times([])) for consumer in consumers]
        return functools.reduce(operator.and_, of_each) if of_each else times([])

    return lambda queue: together(readers.get(queue, everyone))


def _readers(history: History) -> Mapping[str, frozenset[int]]:
    """Return the consumers that ever got something from each queue, for queues of which any did."""
    found: dict[int, set[int]] = {}
    for queue, consumer in pieces(history.deliveries(), "queue", "consumer"):
        for index, one in {*zip(*(np.unique(np.stack([queue, consumer]), axis=1).tolist()), strict=True)}:
            found.setdefault(index, set()).add(one)
    return {queue.name: frozenset(found[index]) for index, queue in enumerate(history.facts.queues) if index in found}


def _lasting(of: Times, least_s: float) -> list[Period]:
    return [(start, end) for start, end in periods(of) if end - start >= least_s * 1e6]


def _processing_s(facts: Facts) -> float:
    """Return the longest time that a consumer takes for a message, in seconds."""
    loads = list(facts.of_kind(LoadEvent))
    processing = [
        *((load.processing_ms, load.variable_processing) for load in loads),
        *((each["processing_ms"], each["variable_processing"]) for load in loads for each in load.services),
    ]
    longest_ms = (max([plain_ms, *(step["processing_ms"] for step in steps)]) for plain_ms, steps in processing)
    return max(longest_ms, default=0.0) / 1000


def _arrivals(history: History, suspects: Mapping[int, Sequence[Period]]) -> Mapping[int, Array]:
    """Return when deliveries of each of the queues arrived, in order."""
    found: dict[int, list[Array]] = {index: [np.empty(0, np.int64)] for index in suspects}
    for queue, received_us in pieces(history.deliveries(), "queue", "received_us") if suspects else ():
        for index, arrived_us in found.items():
            arrived_us.append(received_us[queue == index])
    return {index: np.sort(np.concatenate(arrived_us)) for index, arrived_us in found.items()}
