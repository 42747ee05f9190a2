"""Consumers that connect when the drain begins, on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from tests.workloads.running import await_confirmed, deliveries, drained, messages, publishes, running, worker_events

pytestmark = pytest.mark.core


@pytest.mark.brokers
def test_a_queue_without_consumers_is_emptied_at_the_drain(cluster: LocalCluster, tmp_path: Path) -> None:
    services = [{"name": "billing"}, {"name": "archive", "consumers": 2, "consume": "at_drain"}]
    with running(cluster, tmp_path, queue_type="classic", services=services, publishers=2, rate_per_s=400) as load:
        await_confirmed(load, 400)
        api = cluster.api(cluster.topology.node_names[0])
        wait_until(
            lambda: {
                queue["name"]: queue.get("consumers")
                for queue in api.queues(load.load.vhost, columns=["name", "consumers"])
            },
            timeout_s=60,
            what="the broker's number of consumers",
            until=lambda consumers: consumers == {"billing-1": 1, "archive-1": 0},
        )
        assert load.received_by_consumer()[1:] == [0, 0]
        assert [event.worker for event in worker_events(tmp_path) if event.worker in ("consumer-1", "consumer-2")] == []
        result = drained(cluster, load)
    assert (result.complete, result.unconsumed) == (True, 0)
    assert {row["consumer"] for row in deliveries(tmp_path)} == {0, 1, 2}
    assert messages(publishes(tmp_path), Outcome.CONFIRMED) == messages(deliveries(tmp_path))


@pytest.mark.brokers
def test_a_consumer_of_the_drain_that_was_started_again_waits_for_it_too(cluster: LocalCluster, tmp_path: Path) -> None:
    with running(cluster, tmp_path, consume="at_drain", rate_per_s=400) as load:
        await_confirmed(load, 200)
        load.worker("consumer-0").kill()
        load.worker("consumer-0").start()
        await_confirmed(load, 400)
        assert load.progress().received == 0
        assert drained(cluster, load).unconsumed == 0
    assert messages(publishes(tmp_path), Outcome.CONFIRMED) == messages(deliveries(tmp_path))
