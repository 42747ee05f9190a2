"""Measure what a run cost the clients of its queues, regardless of the cause; nothing is judged here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rabbitmq_resilience.checkers.columns import pieces
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import lasting_s
from rabbitmq_resilience.checkers.held_back import held_back
from rabbitmq_resilience.checkers.message_ledger import ledger_of
from rabbitmq_resilience.checkers.network import network
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.outages import Outages, joined, outages, without_deliveries
from rabbitmq_resilience.checkers.times import Period, periods, times
from rabbitmq_resilience.checkers.traffic import Traffic
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, History
from rabbitmq_resilience.history.events import LoadEvent, WorkerEvent
from rabbitmq_resilience.history.history import Outcome

#: What ends a client's connection, and what begins one.
_LOST = ("connection_lost", "killed", "started")


def consequences(history: History) -> dict[str, Any] | None:
    """Return the consequences as ``verdict.json`` holds them; None if the begin or end of publishing is not known.

    ``publishing_s`` is the length of the judged time. ``outages`` takes all queues as one: ``longest_s``, ``total_s``,
    ``ratio`` (the part of the time) and ``count``. ``queues`` has the same for each queue with outages, and ``worst``
    the longest ones: {queue, start_s, lasts_s, beside}. ``start_s`` is in seconds since the run's first event, and the
    last field names the faults during the outage.
    ``publishers`` has the times in which any publisher was blocked, got nacks, or had no connection. ``consumers`` has
    the times in which those of a queue received nothing though messages were due, or any had no connection. Each is
    {longest_s, total_s}. ``returned`` exists if messages were returned as unroutable: how many ``messages``, ``of`` how
    many sent. ``network`` exists only if round trips were measured (``checkers.network``), and ``held_back`` only if
    brokers were asked for connections in flow control (``checkers.held_back``).
    """
    facts, traffic = history.facts, ledger_of(history).traffic
    if traffic is None:
        return None
    flows = {facts.queue_name(index): flow for index, flow in sorted(traffic.flows.items())}
    by_queue = {name: found for name, flow in flows.items() if (found := outages(traffic, flow)).periods}
    read = _read(facts)
    starved = {
        name: without_deliveries(traffic, flow) for name, flow in flows.items() if flow.delivered.any() or name in read
    }
    further = {"returned": _returned(history), "network": network(history), "held_back": held_back(history)}
    nacked = joined(np.unique([tick for of_one in traffic.nacks.values() for tick in np.flatnonzero(of_one)]), traffic)
    return {
        "publishing_s": traffic.span_s,
        "outages": _as_dict(outages(traffic, traffic.all_queues())),
        "queues": {name: _as_dict(found) for name, found in by_queue.items()},
        "worst": _worst(facts, by_queue),
        "publishers": {
            "blocked": _lengths(_within(facts.blocked_us, traffic)),
            "nacked": _lengths(nacked),
            "disconnected": _lengths(_disconnected(facts, traffic, "publisher")),
        },
        "consumers": {
            "without": _lengths([period for found in starved.values() for period in found.periods]),
            "disconnected": _lengths(_disconnected(facts, traffic, "consumer")),
        },
        **{name: found for name, found in further.items() if found is not None},
    }


def _read(facts: Facts) -> frozenset[str]:
    """Return the queues that the consumers of a generated load read all the time, also if they got nothing."""
    if not any(facts.of_kind(LoadEvent)) or next(facts.of_clients("consumer"), None) is None:
        return frozenset()
    return frozenset(queue.name for queue in facts.queues) - facts.read_at_drain


def _returned(history: History) -> dict[str, int] | None:
    sent = returned = 0
    for lane, outcome in pieces(history.publishes(), "lane", "outcome"):
        once = outcome[lane == 0]  # a message has a row for each of its queues
        sent += int(np.count_nonzero(once != Outcome.NEVER_SENT))
        returned += int(np.count_nonzero(once == Outcome.RETURNED))
    return {"messages": returned, "of": sent} if returned else None


def _as_dict(found: Outages) -> dict[str, float]:
    ratio = round(found.ratio, 4)
    return {"longest_s": found.longest_s, "total_s": found.total_s, "ratio": ratio, "count": len(found.periods)}


def _worst(facts: Facts, by_queue: Mapping[str, Outages]) -> list[dict[str, Any]]:
    every = [(period, name) for name, found in by_queue.items() for period in found.periods]
    every.sort(key=lambda one: (one[0][0] - one[0][1], one[0][0], one[1]))
    return [
        {
            "queue": name,
            "start_s": facts.since_start_s(start),
            "lasts_s": lasting_s([(start, end)]),
            "beside": facts.faults_during(start, end),
        }
        for (start, end), name in every[:EXAMPLES_MAX]
    ]


def _lengths(found: Sequence[Period]) -> dict[str, float]:
    """Return the longest of the periods, and the time that they cover together, in seconds."""
    total_s = lasting_s(periods(times(found)))
    return {"longest_s": max((lasting_s([p]) for p in found), default=0.0), "total_s": total_s}


def _within(found: Iterable[Period], traffic: Traffic) -> list[Period]:
    first, last = traffic.span_us
    return [(max(a, first), min(b, last)) for a, b in found if a < last and b > first]


def _disconnected(facts: Facts, traffic: Traffic, kind: str) -> list[Period]:
    """Return the periods from the loss of a connection to the next one, for all workers of that kind."""
    lost_us: dict[str, int] = {}
    found: list[Period] = []
    for event in facts.of_kind(WorkerEvent):
        if not event.worker.startswith(kind):
            continue
        if event.event in _LOST:
            lost_us.setdefault(event.worker, event.t_us)
        elif event.worker in lost_us:  # connected again, or stopped in order
            found.append((lost_us.pop(event.worker), event.t_us))
    return _within([*found, *((start, NEVER_US) for start in lost_us.values())], traffic)
