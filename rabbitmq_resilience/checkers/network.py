"""Estimate how much of the confirm time was the network's, from raw round trips measured at the same time.

A confirm needs a round trip between its publisher and a broker. It needs one between brokers too, if another broker
leads the queue or the queue has copies. The network's part is at most the slowest of these ways at that time. A way
that took longer than the confirm itself does not count, as the confirm cannot have needed it. A way that did not answer
counts for the part of the time in which it did not. The rest is the time of RabbitMQ, or of the machine under it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from statistics import median_low
from typing import Any

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.columns import pieces
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.history.round_trips import (
    KINDS,
    Distribution,
    RoundTripInterval,
    RoundTripSample,
    kind_of,
    rounds,
    spells,
)

#: The part of all confirms that counts as the slowest.
SLOWEST = 0.01
#: How many of the slowest confirms are examined at most, at equal distances.
LOOKED_AT_MAX = 2000
#: An unanswered round trip has lasted for at least this long (``sut.round_trip_probes``).
LOST_AFTER_MS = 2000.0
#: Ways are measured twice a second, at somewhat irregular intervals.
AROUND_US = 750_000

Moments = npt.NDArray[np.int64]


def network(history: History) -> dict[str, Any] | None:
    """Return the measurements for ``verdict.json``; None if no round trips were measured.

    ``round_trips``: for clients, balancers and brokers {answered, lost, mean_ms, p99_ms, max_ms, deviation_ms} of the
    whole run. ``median_ms`` is the median of all confirms, ``slowest_ms`` the shortest of the slowest 1 %.
    ``network_ratio`` is the median, over the slowest confirms, of the largest part that the network can have had. These
    are None without a confirm.
    """
    series = spells(history.events)
    if not series:
        return None
    measured = {kind: _distribution(series, kind) for kind in KINDS}
    measures: dict[str, Any] = {"round_trips": {kind: found for kind, found in measured.items() if found is not None}}
    sent_us, confirmed_us = _confirms(history)
    if not len(sent_us):
        return {**measures, "median_ms": None, "slowest_ms": None, "network_ratio": None}
    took_us = confirmed_us - sent_us
    slowest_us = np.partition(took_us, rank := math.ceil((1 - SLOWEST) * len(took_us)) - 1)[rank]
    slow = np.flatnonzero(took_us >= slowest_us)
    chosen = slow[:: math.ceil(len(slow) / LOOKED_AT_MAX)]
    measured_then = list(rounds(series))
    ratios = [_network_ratio(measured_then, float(sent_us[row]), float(confirmed_us[row])) for row in chosen.tolist()]
    return {
        **measures,
        "median_ms": round(float(np.median(took_us)) / 1000, 3),
        "slowest_ms": round(float(slowest_us) / 1000, 3),
        "network_ratio": round(float(np.median(ratios)), 4),
    }


def _distribution(series: Sequence[RoundTripInterval], kind: str) -> dict[str, float | int | None] | None:
    ways = [trips for spell in series for way, trips in spell.trips_ms.items() if kind_of(way) == kind]
    if not ways:
        return None
    found = Distribution.of(ms for trips in ways for ms in trips)
    names = ("mean_ms", "p99_ms", "max_ms", "deviation_ms")
    numbers = {name: None if math.isnan(value := getattr(found, name)) else round(value, 3) for name in names}
    return {"answered": found.answered, "lost": found.lost, **numbers}


def _confirms(history: History) -> tuple[Moments, Moments]:
    """Return when each message was sent and when it was confirmed, if it was sent during the publishing time."""
    span_us = history.facts.publishing_us
    sent: list[Moments] = [np.zeros(0, np.int64)]
    confirmed: list[Moments] = [np.zeros(0, np.int64)]
    columns = pieces(history.publishes(), "lane", "sent_us", "outcome", "outcome_us") if span_us else ()
    for lane, sent_us, outcome, outcome_us in columns:
        rows = (lane == 0) & (outcome == Outcome.CONFIRMED)
        rows &= (sent_us >= span_us[0]) & (sent_us < span_us[1]) if span_us else False
        sent.append(sent_us[rows])
        confirmed.append(outcome_us[rows])
    return np.concatenate(sent), np.concatenate(confirmed)


def _network_ratio(measured: Sequence[RoundTripSample], sent_us: float, confirmed_us: float) -> float:
    """Return the largest part of that time that the network can have had; 0 if nothing was measured then."""
    near = measured[
        bisect_left(measured, sent_us - AROUND_US, key=_moment) : bisect_right(
            measured, confirmed_us + AROUND_US, key=_moment
        )
    ]
    took_ms = (confirmed_us - sent_us) / 1000
    trips_ms: dict[str, list[float]] = {}
    for one in near:
        for way, ms in one.trips_ms.items():
            trips_ms.setdefault(way, []).append(math.inf if ms is None else ms)
    most_ms = dict.fromkeys(KINDS, 0.0)
    for way, trips in trips_ms.items():
        lost = trips.count(math.inf)
        way_ms = median_low(trips) if not lost else took_ms * lost / len(trips)
        if way_ms <= took_ms and (not lost or took_ms >= LOST_AFTER_MS):
            most_ms[kind_of(way)] = max(most_ms[kind_of(way)], way_ms)
    return min(1.0, sum(most_ms.values()) / max(took_ms, 0.001))


def _moment(of: RoundTripSample) -> float:
    return of.t_us
