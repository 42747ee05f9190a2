"""Prepare the brokers' own metrics for the page; all is empty if a run was not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from rabbitmq_resilience.history.metrics import ReadMetrics
from rabbitmq_resilience.report.timeline import Samples, SwimLane, TimelineInterval, samples

#: The alarms by the metric that shows them.
ALARMS = {"alarm_memory": "memory", "alarm_disk": "disk"}

#: From this part of the watermark on, the chart shows the watermark. Below, it would only flatten the curves.
NEAR_WATERMARK = 0.4


@dataclass(frozen=True)
class BrokerCurves:
    """The brokers' metrics. ``memory``: bytes of each node, with the watermark if a node came near it. ``received``:
    bytes/s that each node received from the others. ``alarms``: a lane for each alarm that was raised on a node."""

    memory: Samples = field(default_factory=Samples)
    memory_note: str = ""
    received: Samples = field(default_factory=Samples)
    alarms: tuple[SwimLane, ...] = ()


def brokers(read: ReadMetrics, *, origin_us: int) -> BrokerCurves:
    """Return the series (schema ``history.metrics.SERIES``) as curves, in seconds since ``origin_us``."""
    table = read("memory_used", "memory_limit", "replication_received", *ALARMS)
    used, limits = (_rows(table, metric, origin_us) for metric in ("memory_used", "memory_limit"))
    ratio = max((_ratio(row, limits.get(at_s, {})) for at_s, row in used.items()), default=0.0)
    lowest = {at_s: min(row.values()) for at_s, row in limits.items()}
    near = {at_s: {"watermark": lowest[at_s]} for at_s in used if at_s in lowest} if ratio >= NEAR_WATERMARK else {}
    return BrokerCurves(
        memory=samples((at_s, {**row, **near.get(at_s, {})}) for at_s, row in used.items()),
        memory_note=f"{ratio:.0%} of the high watermark at most" if ratio else "",
        received=samples(_rows(table, "replication_received", origin_us).items()),
        alarms=tuple(lane for metric in ALARMS for lane in _alarm_lanes(table, metric, origin_us)),
    )


def _ratio(used: Mapping[str, float], limits: Mapping[str, float]) -> float:
    """Return the largest part of its limit that a node used; 0 if no limit is known."""
    return max((n_bytes / limits[node] for node, n_bytes in used.items() if limits.get(node)), default=0.0)


def _rows(table: pa.Table, metric: str, origin_us: int) -> dict[float, dict[str, float]]:
    """Return one metric of the nodes: {seconds: {node: value}}, in the order of time."""
    found = table.filter(pc.equal(table["metric"], metric)).sort_by([("t_us", "ascending"), ("node", "ascending")])
    columns = (found[name].to_pylist() for name in ("t_us", "node", "value"))
    rows: dict[float, dict[str, float]] = {}
    for t_us, node, value in zip(*columns, strict=True):
        rows.setdefault((t_us - origin_us) / 1e6, {})[node] = value
    return rows


def _alarm_lanes(table: pa.Table, metric: str, origin_us: int) -> list[SwimLane]:
    """Return a lane for each node with intervals from a sample with the alarm to the next sample without it."""
    intervals: dict[str, list[TimelineInterval]] = {}
    since: dict[str, float] = {}
    rows = _rows(table, metric, origin_us)
    for at_s, row in rows.items():
        for node, raised in row.items():
            if raised:
                since.setdefault(node, at_s)
            elif node in since:
                intervals.setdefault(node, []).append(TimelineInterval(since.pop(node), at_s, "alarm"))
    for node, start_s in since.items():
        intervals.setdefault(node, []).append(TimelineInterval(start_s, max(rows), "alarm"))
    return [SwimLane(f"{node} {ALARMS[metric]}", tuple(found)) for node, found in sorted(intervals.items())]
