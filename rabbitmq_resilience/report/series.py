"""Compute rates and latencies of a whole run from its streams of messages, small enough for a page.

One pass finds the bounds of time, one reads the publishes, one the deliveries. Except for fixed tables, memory grows by
four bytes for each message: the moment of its sending, which is needed for the latency of its delivery.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rabbitmq_resilience.history.events import Event, LoadEvent, PhaseEvent
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.history.metrics import ReadMetrics, no_metrics
from rabbitmq_resilience.history.recorded_alerts import RecordedAlerts
from rabbitmq_resilience.report.alert_lanes import alert_lanes
from rabbitmq_resilience.report.application_lanes import application_lanes
from rabbitmq_resilience.report.background_lanes import Curves, churn_curves, idle_curves, idle_lost
from rabbitmq_resilience.report.broker_curves import BrokerCurves, brokers
from rabbitmq_resilience.report.timeline import POINTS_MAX, SwimLane, Timeline, timeline

Batches = Callable[[], Iterable[pa.RecordBatch]]
Ints = npt.NDArray[np.int64]

BUCKETS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600)

#: Rows that are read together, regardless of the writers' batches.
ROWS_TOGETHER = 1 << 17

#: The finest resolution of the moments of sending, which are kept for delivery latencies.
TICK_US = 100
#: How many moments four bytes can distinguish.
_MOMENTS_MAX = 2**31 - 1

PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class Series:
    """The data of all charts of a run.

    ``at_s`` are the middles of buckets of ``bucket_s``, in seconds since the run's first record. Each curve of
    ``rates`` (messages/s), ``confirm_ms`` and ``delivery_ms`` has one value for each bucket. A latency counts in the
    bucket of its end; a bucket without any has None. ``target_per_s`` is the target of all publishers together, None
    without a limit or without publishing; it is empty if no event states it. ``totals`` count the messages of the whole
    run. ``idle`` and ``churn``: see ``report.background_lanes``.
    """

    bucket_s: int
    duration_s: float
    at_s: list[float]
    rates: dict[str, list[float]]
    confirm_ms: dict[str, list[float | None]]
    delivery_ms: dict[str, list[float | None]]
    target_per_s: list[float | None]
    totals: dict[str, int]
    timeline: Timeline
    brokers: BrokerCurves
    alerts: tuple[SwimLane, ...] = ()
    idle: Curves = field(default_factory=dict)
    idle_lost: int = 0
    churn: Curves = field(default_factory=dict)
    processes: tuple[SwimLane, ...] = ()


def series(
    publishes: Batches,
    deliveries: Batches,
    events: Sequence[Event],
    metrics: ReadMetrics = no_metrics,
    alerts: RecordedAlerts | None = None,
) -> Series:
    """Return the series of a run; an empty run gives one empty bucket. Each callable starts a fresh pass."""
    origin_us, end_us = _bounds(publishes, deliveries, events)
    buckets = _Buckets.over(origin_us, end_us)
    sent, confirmed, refused, uncertain, received = (buckets.zeros() for _ in range(5))
    confirm, delivery = _Latencies(buckets.n), _Latencies(buckets.n)
    send_times = _SendTimes(origin_us, end_us)

    for rows in _together(publishes()):
        outcome, sent_us, outcome_us = (_ints(rows, name) for name in ("outcome", "sent_us", "outcome_us"))
        was_sent = outcome != Outcome.NEVER_SENT
        send_times.record(*(_ints(rows, name)[was_sent] for name in ("publisher", "sequence", "sent_us")))
        buckets.count_into(sent, sent_us[was_sent])
        buckets.count_into(confirmed, outcome_us[outcome == Outcome.CONFIRMED])
        buckets.count_into(refused, outcome_us[np.isin(outcome, (Outcome.NACKED, Outcome.RETURNED))])
        buckets.count_into(uncertain, outcome_us[outcome == Outcome.UNKNOWN])
        done = outcome == Outcome.CONFIRMED
        confirm.add(buckets.index(outcome_us[done]), outcome_us[done] - sent_us[done])

    for rows in _together(deliveries()):
        received_us, intact = _ints(rows, "received_us"), _ints(rows, "intact") == 1
        buckets.count_into(received, received_us)
        sent_us = send_times.of(_ints(rows, "publisher"), _ints(rows, "sequence"))
        known = intact & (sent_us >= 0)
        delivery.add(buckets.index(received_us[known]), received_us[known] - sent_us[known])

    counted = {"sent": sent, "confirmed": confirmed, "received": received, "refused": refused, "unknown": uncertain}
    return Series(
        bucket_s=buckets.width_s,
        duration_s=round((end_us - origin_us) / 1e6, 2),
        at_s=[(t_us - origin_us) / 1e6 for t_us in buckets.middles_us()],
        rates={
            name: [round(float(n) / s, 2) for n, s in zip(counts, buckets.lengths_s(), strict=True)]
            for name, counts in counted.items()
        },
        confirm_ms=confirm.curves_ms(),
        delivery_ms=delivery.curves_ms(),
        target_per_s=_target_per_s(events, buckets.middles_us()),
        totals={name: int(counts.sum()) for name, counts in counted.items()},
        timeline=timeline(events, origin_us=origin_us, end_us=end_us),
        brokers=brokers(metrics, origin_us=origin_us),
        alerts=alert_lanes(alerts, origin_us=origin_us),
        idle=idle_curves(events, buckets.middles_us()),
        idle_lost=idle_lost(events),
        processes=application_lanes(events, origin_us=origin_us, end_us=end_us),
        churn=churn_curves(events, buckets.index_of, buckets=buckets.n, bucket_s=buckets.width_s),
    )


def _target_per_s(events: Sequence[Event], moments_us: Iterable[float]) -> list[float | None]:
    """Return the target at each moment; None outside the time from the steady phase to the drain."""
    loads = [event for event in events if isinstance(event, LoadEvent)]
    if not loads:
        return []
    rate = loads[0].rate
    phases = {event.phase: event.t_us for event in events if isinstance(event, PhaseEvent)}
    start_us, end_us = phases.get("steady", math.inf), phases.get("drain", math.inf)
    return [rate.at(t_us) if start_us <= t_us < end_us else None for t_us in moments_us]


def _bounds(publishes: Batches, deliveries: Batches, events: Sequence[Event]) -> tuple[int, int]:
    """Return the first and last recorded moment; (0, 0) if nothing was recorded."""
    moments = [event.t_us for event in (*events[:1], *events[-1:])]
    for rows in _together(publishes()):
        sent = rows.filter(pc.not_equal(rows["outcome"], int(Outcome.NEVER_SENT)))
        if sent.num_rows:
            moments += [pc.min(sent["sent_us"]).as_py(), pc.max(sent["sent_us"]).as_py()]
            moments += [pc.max(sent["outcome_us"]).as_py()]
    for rows in _together(deliveries()):
        moments += [pc.min(rows["received_us"]).as_py(), pc.max(rows["received_us"]).as_py()]
    return (min(moments), max(moments)) if moments else (0, 0)


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of about ROWS_TOGETHER rows, so that many small batches cost one call."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_TOGETHER:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held)


def _ints(rows: pa.Table, name: str) -> Ints:
    values: Ints = rows[name].cast(pa.int64()).fill_null(0).to_numpy()
    return values


@dataclass(frozen=True)
class _Buckets:
    """The run's time in equal parts, but for the last one."""

    origin_us: int
    width_s: int
    n: int
    span_s: float

    @classmethod
    def over(cls, origin_us: int, end_us: int) -> _Buckets:
        span_s = (end_us - origin_us) / 1e6
        width_s = next((width for width in BUCKETS_S if span_s <= width * POINTS_MAX), int(span_s / POINTS_MAX) + 1)
        # A last bucket of less than half the width would say little: it joins the bucket before it.
        return cls(origin_us, width_s, max(1, math.ceil(span_s / width_s - 0.5)), span_s)

    def lengths_s(self) -> list[float]:
        """Return the seconds of each bucket; the last one is as long as the rest of the record."""
        last_s = self.span_s - (self.n - 1) * self.width_s
        return [*([float(self.width_s)] * (self.n - 1)), last_s or float(self.width_s)]

    def middles_us(self) -> list[float]:
        return [self.origin_us + (i + 0.5) * self.width_s * 1e6 for i in range(self.n)]

    def zeros(self) -> Ints:
        """Return a count of 0 for each bucket."""
        return np.zeros(self.n, dtype=np.int64)

    def index(self, moments_us: Ints) -> Ints:
        return np.clip((moments_us - self.origin_us) // (self.width_s * 1_000_000), 0, self.n - 1)

    def index_of(self, moment_us: int) -> int:
        return int(self.index(np.array([moment_us], np.int64))[0])

    def count_into(self, counts: Ints, moments_us: Ints) -> None:
        """Add each moment to ``counts``, in place."""
        counts += np.bincount(self.index(moments_us), minlength=self.n)


class _Latencies:
    """A histogram for each bucket, with bins in geometric steps of 3.7 % from 0.1 ms to a day, and the exact
    maximum."""

    BINS_PER_DECADE = 64
    DECADES = 9
    SHORTEST_US = 100

    def __init__(self, buckets: int) -> None:
        self._bins = self.BINS_PER_DECADE * self.DECADES
        self._counts = np.zeros((buckets, self._bins), dtype=np.uint32)
        self._max_us: Ints = np.zeros(buckets, dtype=np.int64)

    def add(self, bucket: Ints, latency_us: Ints) -> None:
        decades = np.log10(np.maximum(latency_us, self.SHORTEST_US) / self.SHORTEST_US)
        bins = np.minimum((decades * self.BINS_PER_DECADE).astype(np.int64), self._bins - 1)
        np.add.at(self._counts.reshape(-1), bucket * self._bins + bins, 1)
        np.maximum.at(self._max_us, bucket, latency_us)

    def curves_ms(self) -> dict[str, list[float | None]]:
        cumulative = np.cumsum(self._counts, axis=1, dtype=np.uint64)
        total = cumulative[:, -1]
        curves: dict[str, list[float | None]] = {}
        for name, share in PERCENTILES.items():
            reached = np.argmax(cumulative >= np.maximum(np.ceil(total * share), 1)[:, None], axis=1)
            upper_us = self.SHORTEST_US * 10 ** ((reached + 1) / self.BINS_PER_DECADE)
            curves[name] = self._ms(np.minimum(upper_us, np.maximum(self._max_us, 1)), total)
        curves["max"] = self._ms(self._max_us, total)
        return curves

    @staticmethod
    def _ms(values_us: npt.NDArray[Any], total: npt.NDArray[Any]) -> list[float | None]:
        """Convert to ms with three digits; None for a bucket without latencies."""
        pairs = zip(values_us, total, strict=True)
        return [float(f"{value / 1000:.3g}") if n else None for value, n in pairs]


class _SendTimes:
    """The moments at which messages were sent, by publisher and sequence. The longer the run, the coarser they are."""

    def __init__(self, origin_us: int, end_us: int) -> None:
        self._origin_us = origin_us
        self._tick_us = max(TICK_US, math.ceil((end_us - origin_us) / _MOMENTS_MAX))
        self._ticks: dict[int, npt.NDArray[np.int32]] = {}

    def record(self, publisher: Ints, sequence: Ints, sent_us: Ints) -> None:
        for name in np.unique(publisher):
            rows = np.flatnonzero(publisher == name)
            ticks = self._with_room(int(name), int(sequence[rows].max()) + 1)
            ticks[sequence[rows]] = (sent_us[rows] - self._origin_us) // self._tick_us

    def of(self, publisher: Ints, sequence: Ints) -> Ints:
        """Return when each message was sent, in microseconds, to a tick; -1 if it never was."""
        found = np.full(len(publisher), -1, dtype=np.int64)
        for name in np.unique(publisher):
            ticks = self._ticks.get(int(name), np.zeros(0, dtype=np.int32))
            rows = np.flatnonzero((publisher == name) & (sequence < len(ticks)))
            rows = rows[ticks[sequence[rows]] >= 0]
            found[rows] = ticks[sequence[rows]].astype(np.int64) * self._tick_us + self._origin_us
        return found

    def _with_room(self, publisher: int, length: int) -> npt.NDArray[np.int32]:
        ticks = self._ticks.get(publisher, np.zeros(0, dtype=np.int32))
        if length > len(ticks):
            room = np.full(max(length, 2 * len(ticks), 1024) - len(ticks), -1, dtype=np.int32)
            ticks = self._ticks[publisher] = np.concatenate([ticks, room])
        return ticks
