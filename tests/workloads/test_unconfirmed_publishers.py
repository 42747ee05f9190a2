"""Publishers that await no confirms leave nothing behind in their connections."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.workload.client_session import CLOSE_TIMEOUT_S
from tests.workloads.running import await_confirmed, drained, running, worker_events

pytestmark = pytest.mark.brokers


@pytest.mark.parametrize("confirms", ["none", "ignored"])
def test_one_that_stops_closes_when_its_broker_has_read_all(
    cluster: LocalCluster, tmp_path: Path, confirms: str
) -> None:
    """The broker stands still for longer than others would wait, and has much to read then."""
    resumed: list[int] = []

    def resume(node: str) -> None:
        resumed.append(now_us())
        cluster.resume(node)

    fields = {"queue_type": "classic", "publishers": 1, "confirms": confirms, "rate_per_s": 2000}
    with running(cluster, tmp_path, **fields) as load:
        await_confirmed(load, 500)
        node = next(e.node for e in worker_events(tmp_path) if e.worker == "publisher-0" and e.event == "connected")
        cluster.pause(node)
        resuming = threading.Timer(CLOSE_TIMEOUT_S + 1, resume, [node])
        resuming.start()
        try:
            await_confirmed(load, load.progress().confirmed + 1000)
            result = drained(cluster, load)
        finally:
            resuming.join()
    assert (result.complete, result.unconsumed) == (True, 0)
    (stopped,) = (e for e in worker_events(tmp_path) if e.worker == "publisher-0" and e.event == "stopped")
    assert stopped.t_us > resumed[0]
