"""Prepare the brokers' own metrics for the page; all is empty if a run was not measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from rabbitmq_resilience.history.metrics import ReadMetrics
from rabbitmq_resilience.report.timeline import Samples, SwimLane, TimelineInterval, joined, samples
from rabbitmq_resilience.tools.percentages import percent_text

#: The alarms by the metric that shows them.
ALARMS = {"alarm_memory": "memory", "alarm_disk": "disk"}

#: Nodes are asked every second. An alarm is not drawn while a node was not heard for longer than this.
UNHEARD_S = 15.0

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
        memory_note=f"{percent_text(ratio)} of the high watermark at most" if ratio else "",
        received=samples(_rows(table, "replication_received", origin_us).items()),
        alarms=tuple(lane for metric in ALARMS for lane in _alarm_lanes(table, metric, origin_us)),
    )


def _ratio(used: Mapping[str, float], limits: Mapping[str, float]) -> float:
    """Return the largest part of its limit that a node used; 0 if no limit is known."""
    return max((n_bytes / limits[node] for node, n_bytes in used.items() if limits.get(node)), default=0.0)


def _rows(table: pa.Table, metric: str, origin_us: int) -> dict[float, dict[str, float]]:
    """Return one metric of the nodes: {seconds: {node: value}}, in the order of time, without what is no number."""
    found = table.filter(pc.equal(table["metric"], metric)).sort_by([("t_us", "ascending"), ("node", "ascending")])
    columns = (found[name].to_pylist() for name in ("t_us", "node", "value"))
    rows: dict[float, dict[str, float]] = {}
    for t_us, node, value in zip(*columns, strict=True):
        if not math.isnan(value):
            rows.setdefault((t_us - origin_us) / 1e6, {})[node] = value
    return rows


def _alarm_lanes(table: pa.Table, metric: str, origin_us: int) -> list[SwimLane]:
    """Return a lane for each node with intervals from a sample with the alarm to the next sample without it, or to the
    last one before the node was not heard for long."""
    seen: dict[str, list[tuple[float, bool]]] = {}
    for at_s, row in _rows(table, metric, origin_us).items():
        for node, raised in row.items():
            seen.setdefault(node, []).append((at_s, bool(raised)))
    lanes = []
    for node, looks in sorted(seen.items()):
        raised_s = (
            TimelineInterval(at_s, next_s, "alarm")
            for (at_s, raised), (next_s, _) in itertools.pairwise(looks)
            if raised and next_s - at_s <= UNHEARD_S
        )
        if any(raised for _, raised in looks):
            lanes.append(SwimLane(f"{node} {ALARMS[metric]}", tuple(joined(raised_s))))
    return lanes
