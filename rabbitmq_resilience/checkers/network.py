"""Estimate how much of the confirm time was the network's, from raw round trips measured at the same time.

A confirm needs a round trip between its publisher and a broker. It needs one between brokers too, if another broker
leads the queue or the queue has copies. The network's part is usually as much as the slowest of these ways usually took
at that time, and at most as much as its slowest round trip. What took longer than the confirm itself does not count, as
the confirm cannot have needed it. A way that did not answer counts for the part of the time in which it did not. The
rest is the time of RabbitMQ, or of the machine under it.
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

#: Of this number of confirms one counts as slowest.
SLOWEST_OF = 100
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
    ``network_ratio`` is the median, over the slowest confirms, of the part that the network usually had at that time,
    and ``network_ratio_max`` of the largest part that it can have had. These are None without a confirm; the ratios
    also if no round trip was measured at the time of most of these confirms.
    """
    series = spells(history.events)
    if not series:
        return None
    measured = {kind: _distribution(series, kind) for kind in KINDS}
    measures: dict[str, Any] = {"round_trips": {kind: found for kind, found in measured.items() if found is not None}}
    sent_us, confirmed_us = _confirms(history)
    if not len(sent_us):
        return {**measures, "median_ms": None, "slowest_ms": None, "network_ratio": None, "network_ratio_max": None}
    took_us = confirmed_us - sent_us
    rank = len(took_us) - math.ceil(len(took_us) / SLOWEST_OF)
    slowest_us = np.partition(took_us, rank)[rank]
    slow = np.flatnonzero(took_us >= slowest_us)
    chosen = slow[:: math.ceil(len(slow) / LOOKED_AT_MAX)]
    measured_then = list(rounds(series))
    found = [_network_ratios(measured_then, float(sent_us[row]), float(confirmed_us[row])) for row in chosen.tolist()]
    known = [ratios for ratios in found if ratios is not None]
    usual, most = np.median(known, axis=0).tolist() if 2 * len(known) > len(found) else (None, None)
    return {
        **measures,
        "median_ms": round(float(np.median(took_us)) / 1000, 3),
        "slowest_ms": round(float(slowest_us) / 1000, 3),
        "network_ratio": None if usual is None else round(usual, 4),
        "network_ratio_max": None if most is None else round(most, 4),
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


def _network_ratios(
    measured: Sequence[RoundTripSample], sent_us: float, confirmed_us: float
) -> tuple[float, float] | None:
    """Return the part of that time that the network usually had then, and the largest that it can have had; None if
    nothing was measured then."""
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
    if not trips_ms:
        return None
    usual_ms, most_ms = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0.0)
    for way, trips in trips_ms.items():
        kind, lost = kind_of(way), trips.count(math.inf)
        lost_ms = took_ms * lost / len(trips) if took_ms >= LOST_AFTER_MS else 0.0
        middle_ms = lost_ms if lost else median_low(trips)
        usual_ms[kind] = max(usual_ms[kind], middle_ms if middle_ms <= took_ms else 0.0)
        most_ms[kind] = max(most_ms[kind], lost_ms, *(ms for ms in trips if ms <= took_ms))
    usual, most = (min(1.0, sum(of.values()) / max(took_ms, 0.001)) for of in (usual_ms, most_ms))
    return usual, most


def _moment(of: RoundTripSample) -> float:
    return of.t_us
