"""A memory alarm of a real broker stops publishers, and they take it as good applications do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rabbitmq_resilience.history.event_log import read_events
from rabbitmq_resilience.history.events import WorkerEvent
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.running_workload import RunningWorkload
from tests.workloads.running import await_confirmed, drained, publishes, running

pytestmark = pytest.mark.brokers

#: RabbitMQ's own default.
USUAL_WATERMARK = "0.4"


def set_watermark(cluster: LocalCluster, node: str, fraction: str) -> None:
    cluster.run_tool(node, "rabbitmqctl", "set_vm_memory_high_watermark", fraction, timeout_s=120)


@contextmanager
def memory_alarm(cluster: LocalCluster, node: str) -> Iterator[None]:
    """Any node's alarm blocks the publishers of all."""
    set_watermark(cluster, node, "0.00001")
    try:
        yield
    finally:
        set_watermark(cluster, node, USUAL_WATERMARK)


def await_blocked(load: RunningWorkload, count: int) -> None:
    blocked = lambda: load.progress().publishers_blocked  # noqa: E731
    wait_until(blocked, timeout_s=60, what=f"{count} blocked publishers", until=lambda seen: seen == count)


def test_a_blocked_publisher_waits_and_loses_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    """Its patience with confirms is less than what it waits. Before that, a busy machine may have exhausted it."""
    patience_s = 5.0
    fields = {"queue_type": "quorum", "publishers": 2, "queues": 2, "rate_per_s": 500, "confirm_timeout_s": patience_s}
    with running(cluster, tmp_path, **fields) as load:
        await_confirmed(load, 200)
        with memory_alarm(cluster, "b1"):
            await_blocked(load, 2)
            still = load.progress().published
            started = [worker.pid for worker in load.publishers]
            _outlast(load, seconds_s=2 * patience_s)
            assert load.progress().published == still
        await_blocked(load, 0)
        await_confirmed(load, load.progress().confirmed + 200)
        assert [worker.pid for worker in load.publishers] == started
        result = drained(cluster, load)
    assert (result.complete, result.unconsumed) == (True, 0)
    rows = publishes(tmp_path)
    for index in range(2):
        told = [e for e in read_events(tmp_path / f"publisher-{index}.jsonl") if isinstance(e, WorkerEvent)]
        since = next(at for at, event in enumerate(told) if event.event == "blocked")
        assert [event.event for event in told[since:]] == ["blocked", "unblocked", "stopped"]
        its = [row for row in rows if row["publisher"] == index and row["outcome_us"] >= told[since].t_us]
        assert {row["outcome"] for row in its} == {Outcome.CONFIRMED}


def _outlast(load: RunningWorkload, *, seconds_s: float) -> None:
    """Wait for longer than the publishers' patience with confirms."""
    ends_s = time.monotonic() + seconds_s

    def over() -> bool:
        load.check()
        return time.monotonic() >= ends_s

    wait_until(over, timeout_s=seconds_s + 10, what="the patience of publishers to be tried")
