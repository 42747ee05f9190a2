"""Latencies of ours and of PerfTest: what is read of both sides is what was there."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.echo_broker import echoing
from benchmarks.perf_test import OURS, PERF_TEST, Plan
from benchmarks.perf_test_latency import (
    CONFIRMED,
    ECHO_VHOST,
    FROM_DUE,
    RECEIVED,
    Measured,
    Server,
    by_second,
    cells,
    nothing,
    of_windows,
    ours,
    python_adds_ms,
)
from rabbitmq_resilience.history.history import DELIVERIES, PUBLISHES, Outcome
from rabbitmq_resilience.workload.load import Address, deliveries_path, publishes_path
from rabbitmq_resilience.workload.perf_test_options import Window
from rabbitmq_resilience.workload.workload_model import Workload
from tests.invariants.literal import deliver, publish, us, write_stream


def test_the_seconds_that_are_measured_count() -> None:
    """And where no confirms were asked for, there is no such latency."""
    windows = [
        Window(ended_s, None if ended_s > 2.5 else 9, 9, {50: middle_ms, 99: middle_ms + 3}, confirm_ms)
        for ended_s, middle_ms, confirm_ms in (
            (1.014, 0.2, {50: 0.1, 99: 0.2}),
            (2.001, 2.0, {50: 0.7, 99: 1.0}),
            (3.0, 4.0, {}),
            (4.0, 0.2, {}),
        )
    ]
    found = of_windows(windows, Plan(warm_up_s=1.5, measure_s=1.5))
    assert (found[RECEIVED].median_ms, found[RECEIVED].p99_ms) == ([2.0, 4.0], [5.0, 7.0])
    assert (found[CONFIRMED].median_ms, found[CONFIRMED].p99_ms) == ([0.7], [1.0])
    assert found[FROM_DUE].p99_ms == []


def test_a_second_of_ours_is_of_what_was_sent_in_it(tmp_path: Path) -> None:
    """100 messages each second that are due 2 ms before they are sent, and received 1 ms later, or 9 in the last."""
    rows, came = [], []
    for sequence in range(300):
        sent_s = 10 + sequence / 100
        waited_s = 0.001 if sequence < 200 else 0.009
        row = publish(sequence, sent_s, Outcome.CONFIRMED)
        rows.append({**row, "route": 0, "due_us": row["sent_us"] - 2000, "outcome_us": row["sent_us"] + 3000})
        came.append(deliver(sequence, sent_s + waited_s))
    write_stream(publishes_path(tmp_path, "publisher-0", 0), PUBLISHES, rows)
    write_stream(deliveries_path(tmp_path, "consumer-0", 0), DELIVERIES, came)
    found = by_second(tmp_path, us(11), us(13.5))
    assert found[RECEIVED].p99_ms == pytest.approx([1, 9], abs=0.01)
    assert found[FROM_DUE].median_ms == pytest.approx([3, 11], abs=0.01)
    assert found[CONFIRMED].p99_ms == pytest.approx([3, 3], abs=0.01)


def a_round(middle_ms: float) -> Measured:
    found = nothing()
    for name in (RECEIVED, CONFIRMED):
        found[name].median_ms.extend([middle_ms] * 3)
        found[name].p99_ms.extend([middle_ms * 2] * 3)
    return found


def test_what_python_adds_is_the_difference() -> None:
    found = {OURS: [a_round(3.0), a_round(9.0), a_round(2.0)], PERF_TEST: [a_round(1.0)] * 3}
    assert python_adds_ms(found) == (2.0, 4.0)


def test_a_row_has_the_middle_round_and_the_range() -> None:
    """A side that does not know when a message was due has no such cell."""
    rounds = [a_round(3.0), a_round(9.0), a_round(2.0)]
    assert cells(rounds) == ["3.0 (2.0 to 9.0)", "6.0 (4.0 to 18)", "", "", "3.0", "6.0"]


@pytest.mark.plays
def test_our_clients_are_measured_without_a_broker() -> None:
    """Whatever the echo hands on arrives, also what came before there was a consumer, and is confirmed."""
    with echoing() as port:
        server = Server(Address("echo", "127.0.0.1", port), ECHO_VHOST, dict)
        load = Workload(queue_type="classic", rate_per_s=200, ack_every=1, message_bytes=1000)
        found = ours(server, load, Plan(warm_up_s=0.5, measure_s=3.1))
    assert 1 <= len(found[RECEIVED].p99_ms) <= 3
    both = zip(found[RECEIVED].median_ms, found[FROM_DUE].median_ms, strict=True)
    assert all(0 < from_sent <= from_due for from_sent, from_due in both)
    assert all(ms > 0 for ms in found[CONFIRMED].median_ms)
