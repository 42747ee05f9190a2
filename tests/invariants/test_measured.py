"""The brokers' own numbers: as curves, and as the numbers of a whole run."""

from __future__ import annotations

from rabbitmq_resilience.checkers.measured import curves, measures
from tests.invariants.literal import history, told, us

GB = 1e9


def test_each_node_and_queue_has_its_own_curve_in_order_of_time() -> None:
    late_first = [
        *told("unacked", "b1", 7, queue="q1", start_s=4, end_s=6),
        *told("unacked", "b1", 6, queue="q1", end_s=1),
    ]
    others = [told("unacked", "a1", 1, queue="q1", end_s=2), told("unacked", "b1", 3, end_s=1), told("ready", "a1", 9)]
    found = curves(history(metrics=[late_first, *others]).metrics, "unacked")
    assert {key: (curve.t_us.tolist(), curve.values.tolist()) for key, curve in found.items()} == {
        ("a1", "q1"): ([us(0), us(1)], [1, 1]),
        ("b1", ""): ([us(0)], [3]),
        ("b1", "q1"): ([us(0), us(4), us(5)], [6, 7, 7]),
    }
    part = found["b1", "q1"].within(us(0), us(4))
    assert part.t_us.tolist() == [us(0), us(4)]


def test_the_numbers_of_a_whole_run() -> None:
    """b1 has no limit at 5 s, as its alarm is raised on purpose."""
    metrics = [
        told("memory_used", "a1", lambda at: 0.712_36 * GB if at == 40 else 0.2 * GB),
        told("memory_limit", "a1", GB),
        told("memory_used", "b1", 0.3 * GB),
        told("memory_limit", "b1", lambda at: 0.0 if at == 5 else GB),
        told("replication_received", "a1", 5, end_s=20),
        told("replication_received", "b1", lambda at: 100 if at == 12 else 7, start_s=10, end_s=30),
    ]
    assert measures(history(metrics=metrics).metrics) == {
        "memory_ratio_max": 0.7124,
        "replicated_bytes": 20 * 5 + 19 * 7 + 100,
        "replicated_peak_bytes_per_s": 105,
    }


def test_what_was_not_measured_has_no_number() -> None:
    assert measures(history().metrics) == {}
    unlimited = [told("memory_used", "a1", GB), told("memory_limit", "a1", 0.0)]
    assert measures(history(metrics=unlimited).metrics) == {}
