from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from rabbitmq_resilience.history.metrics import SERIES, ReadMetrics, no_metrics
from rabbitmq_resilience.report.broker_curves import brokers
from rabbitmq_resilience.report.charts import charts
from rabbitmq_resilience.report.series import series
from rabbitmq_resilience.report.timeline import TimelineInterval
from tests.messages import Messages

S = 1_000_000


def table(*rows: tuple[str, str, Iterable[tuple[float, float]]]) -> ReadMetrics:
    """Rows of (metric, node, [(at_s, value)])."""
    rows_of_all = pa.Table.from_pylist(
        [
            {"metric": metric, "node": node, "queue": "", "t_us": int((100 + at_s) * S), "value": value}
            for metric, node, values in rows
            for at_s, value in values
        ],
        schema=SERIES,
    )
    return lambda *_: rows_of_all


def test_empty() -> None:
    seen = brokers(no_metrics, origin_us=0)
    assert (seen.memory.curves, seen.memory_note, seen.received.curves, seen.alarms) == ({}, "", {}, ())
    assert charts(series(tuple, tuple, []))["panels"] == []


def test_the_watermark_stands_next_to_memory_that_comes_near_it(message: Messages) -> None:
    used, limit = ("memory_used", "a1", [(0, 20.0), (1, 60.0)]), ("memory_limit", "a1", [(0, 100.0), (1, 80.0)])
    near = brokers(table(used, limit), origin_us=100 * S)
    assert near.memory.curves == {"a1": [20, 60], "watermark": [100, 80]}
    assert "75%" in near.memory_note
    message(near.memory_note)


def test_a_watermark_far_above_is_only_reported(message: Messages) -> None:
    used, limit = ("memory_used", "a1", [(0, 20.0), (1, 30.0)]), ("memory_limit", "a1", [(0, 1000.0), (1, 1000.0)])
    far = brokers(table(used, limit), origin_us=100 * S)
    assert far.memory.curves == {"a1": [20, 30]}
    assert "3%" in far.memory_note
    message(far.memory_note)


def test_a_node_that_is_down_leaves_a_gap() -> None:
    up, down = [(at, 5.0) for at in range(4)], [(at, 7.0) for at in (0, 3)]
    received = brokers(table(("replication_received", "a1", up), ("replication_received", "b1", down)), origin_us=0)
    assert received.received.curves == {"a1": [5, 5, 5, 5], "b1": [7, None, None, 7]}


def test_alarms_are_lanes_from_sight_to_sight() -> None:
    raised = [(at, float(at in (2, 3, 6, 7))) for at in range(8)]
    seen = brokers(table(("alarm_disk", "b1", raised), ("alarm_memory", "b1", [(0, 0.0)])), origin_us=100 * S)
    assert [lane.name for lane in seen.alarms] == ["b1 disk"]
    assert seen.alarms[0].intervals == (TimelineInterval(2, 4, "alarm"), TimelineInterval(6, 7, "alarm"))
