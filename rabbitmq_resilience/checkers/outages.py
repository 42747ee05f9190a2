"""Find the times in which a queue confirmed nothing although publishers tried, whatever the cause.

An outage lasts from the time at which the first unconfirmed message was due until the next confirm of that queue, or
the end of publishing. Moments are the middles of ticks of ``traffic.TICK_US``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rabbitmq_resilience.checkers.columns import Array
from rabbitmq_resilience.checkers.gaps import lasting_s
from rabbitmq_resilience.checkers.times import Period, periods, times
from rabbitmq_resilience.checkers.traffic import TICK_US, Flow, Traffic

#: Shorter outages are not reported: they are unnoticed elections, or gaps in a slow load.
OUTAGE_S_MIN = 1.0


@dataclass(frozen=True)
class Outages:
    """The outages of a queue, or of several taken as one, in a span of ``span_s``."""

    periods: Sequence[Period]
    span_s: float

    @property
    def longest(self) -> Period | None:
        return max(self.periods, key=lambda period: period[1] - period[0], default=None)

    @property
    def longest_s(self) -> float:
        return 0.0 if self.longest is None else lasting_s([self.longest])

    @property
    def total_s(self) -> float:
        return lasting_s(self.periods)

    @property
    def ratio(self) -> float:
        """Return the part of the span that all outages together take."""
        return self.total_s / self.span_s if self.span_s else 0.0


def outages(traffic: Traffic, flow: Flow, *, least_s: float = OUTAGE_S_MIN) -> Outages:
    """Return the outages of a queue, or of several queues that are taken as one."""
    under_way = np.cumsum(flow.under_way)
    silences = _silences(np.flatnonzero(flow.confirms), traffic.ticks, least_s)
    due = np.flatnonzero(flow.due)
    found = (
        (_first_due(before, due, tried=before >= 0 and under_way[before] > 0), after) for before, after in silences
    )
    return _of(traffic, [(start, after) for start, after in found if start is not None], least_s)


def open_since_us(traffic: Traffic, flow: Flow) -> float | None:
    """Return since when a message was due that was not confirmed when publishing ended; None if there was none."""
    confirmed, under_way = np.flatnonzero(flow.confirms), np.cumsum(flow.under_way)
    before = int(confirmed[-1]) if len(confirmed) else -1
    start = _first_due(before, np.flatnonzero(flow.due), tried=before >= 0 and under_way[before] > 0)
    return None if start is None else _moment_us(traffic, start)


def without_deliveries(traffic: Traffic, flow: Flow, *, least_s: float = OUTAGE_S_MIN) -> Outages:
    """Return when the consumers of a queue received nothing: from the time at which the first message was due after the
    last delivery, until the next delivery."""
    due = np.flatnonzero(flow.due)
    silences = _silences(np.flatnonzero(flow.delivered), traffic.ticks, least_s)
    found = ((_first_due(before, due, tried=False), after) for before, after in silences)
    return _of(traffic, [(start, after) for start, after in found if start is not None], least_s)


def untried_periods(traffic: Traffic, flow: Flow, *, least_s: float = OUTAGE_S_MIN) -> list[Period]:
    """Return when no message was under way and none was due. It is not known whether the queue would have confirmed a
    message then."""
    under_way = np.cumsum(flow.under_way)
    tried = np.flatnonzero((under_way > 0) | flow.due | (flow.confirms > 0))
    return list(_of(traffic, _silences(tried, traffic.ticks, least_s), least_s).periods)


def _silences(moments: Array, ticks: int, least_s: float) -> list[tuple[int, int]]:
    """Return the neighbours that are far apart among: -1, the moments, and the end of the last tick."""
    edges = np.concatenate(([-1], moments, [ticks]))
    far = np.flatnonzero(np.diff(edges) >= least_s * 1e6 / TICK_US)
    return [(int(edges[i]), int(edges[i + 1])) for i in far]


def _first_due(before: int, due: Array, *, tried: bool) -> int | None:
    """Return the tick since which a message was due: the tick ``before`` of the last confirm, if another message was
    under way then (``tried``); None if no message was due."""
    if tried:
        return before
    later = int(np.searchsorted(due, before, side="right"))
    return int(due[later]) if later < len(due) else None


def _of(traffic: Traffic, found: Sequence[tuple[int, int]], least_s: float) -> Outages:
    moments = [(_moment_us(traffic, start), _moment_us(traffic, after)) for start, after in found]
    lasting = [(start, end) for start, end in moments if end - start >= least_s * 1e6]
    return Outages(lasting, traffic.span_s)


def _moment_us(traffic: Traffic, tick: int) -> float:
    """Return the middle of a tick, at the ends that of publishing."""
    start_us, end_us = traffic.span_us
    return max(start_us, min(end_us, start_us + (tick + 0.5) * TICK_US))


def as_if_tried(traffic: Traffic, flow: Flow, untried: Sequence[Period]) -> Outages:
    """Return the longest outages that are possible: as if the queue had confirmed nothing during ``untried``. A confirm
    separates two outages."""
    confirmed_us = traffic.span_us[0] + (np.flatnonzero(flow.confirms) + 0.5) * TICK_US
    found: list[Period] = []
    for start, end in periods(times([*outages(traffic, flow).periods, *untried])):
        inside = confirmed_us[(confirmed_us > start) & (confirmed_us < end)].tolist()
        found += itertools.pairwise([start, *inside, end])
    return Outages(found, traffic.span_s)


def joined(moments: Array, traffic: Traffic, *, apart_s: float = OUTAGE_S_MIN) -> list[Period]:
    """Return ticks as periods. Ticks that are less than ``apart_s`` apart belong to one period."""
    far = np.flatnonzero(np.diff(moments) - 1 > apart_s * 1e6 / TICK_US)
    first, last = ([*moments[:1], *moments[far + 1]], [*moments[far], *moments[-1:]])
    return [
        (traffic.span_us[0] + float(a) * TICK_US, traffic.span_us[0] + (float(b) + 1) * TICK_US)
        for a, b in zip(first, last, strict=True)
    ]
