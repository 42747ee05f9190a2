"""The observer of a real cluster, when the processes cannot be looked at for a while."""

from __future__ import annotations

from typing import Any

import pika
import pytest

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.nemesis.alarm import IMPOSSIBLE_BYTES
from rabbitmq_resilience.sut.node_protocol import NodeState
from rabbitmq_resilience.sut.observer import Observer
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.sut.running import RunningCluster
from rabbitmq_resilience.tools.waiting import wait_until
from tests.statistics_ended import END

pytestmark = pytest.mark.core


def test_it_goes_on_after_a_look_that_failed_and_records_none(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    failed: list[str] = []

    def record(kind: str, **fields: Any) -> None:
        if kind == "nodes":
            seen.append(fields)

    look = cluster.state

    def refuses(node: str) -> NodeState:
        failed.append(node)
        raise ClusterError("the engine does not answer")

    with Observer(cluster, "unused", record) as observer:
        wait_until(lambda: seen, timeout_s=60, what="a first look")
        monkeypatch.setattr(cluster, "state", refuses)
        wait_until(lambda: len(failed) > 2, timeout_s=60, what="looks that fail")
        before = len(seen)
        wait_until(lambda: len(failed) > 4, timeout_s=60, what="more looks that fail")
        assert len(seen) == before
        monkeypatch.setattr(cluster, "state", look)
        wait_until(lambda: len(seen) > before, timeout_s=60, what="the observer to look again")
        assert set(observer.states.values()) == {"up"}


@pytest.mark.brokers
def test_it_reports_connections_that_an_alarm_blocks() -> None:
    """Of a publisher before, while and after a broker is short of disk."""
    seen: list[dict[str, Any]] = []

    def record(kind: str, **fields: Any) -> None:
        if kind == "flow_states":
            seen.append(fields)

    def told(state: str) -> bool:
        return any(look["connections"].get(state) for look in seen)

    with LocalCluster.form(topology_catalogue.load("three_nodes_three_zones")) as cluster:
        api = cluster.api("a1")
        api.create_vhost("flow")
        api.declare_queue("flow", "q1")
        parameters = pika.ConnectionParameters("127.0.0.1", cluster.amqp_endpoint("a1").port, "flow", heartbeat=0)
        with Observer(cluster, "flow", record), pika.BlockingConnection(parameters) as publisher:
            wait_until(lambda: told("running"), timeout_s=60, what="a connection that runs")
            assert not told("blocked")
            channel = publisher.channel()
            cluster.run_tool("a1", "rabbitmqctl", "set_disk_free_limit", str(IMPOSSIBLE_BYTES))

            def published() -> bool:
                channel.basic_publish("", "q1", b"one")
                publisher.process_data_events(0)
                return told("blocked")

            wait_until(published, timeout_s=60, what="the publisher to be blocked")
            cluster.run_tool("a1", "rabbitmqctl", "set_disk_free_limit", "50MB")
            seen.clear()
            wait_until(lambda: told("running"), timeout_s=60, what="the publisher to go on")


@pytest.mark.brokers
def test_it_reports_a_node_that_shows_nothing_of_itself() -> None:
    """Such a node's connections are missing from what any node tells."""
    seen: list[dict[str, Any]] = []

    def record(kind: str, **fields: Any) -> None:
        if kind == "flow_states":
            seen.append(fields)

    def of(node: str) -> list[dict[str, Any]]:
        return [look for look in seen if look["node"] == node]

    with LocalCluster.form(topology_catalogue.load("three_nodes_three_zones")) as cluster:
        cluster.api("a1").create_vhost("flow")
        parameters = pika.ConnectionParameters("127.0.0.1", cluster.amqp_endpoint("b1").port, "flow", heartbeat=0)
        with Observer(cluster, "flow", record), pika.BlockingConnection(parameters):
            wait_until(
                lambda: any(look["connections"] for look in seen), timeout_s=60, what="the connection to be told"
            )
            assert cluster.run_tool("b1", "rabbitmqctl", "eval", END).strip() == "true"
            seen.clear()
            wait_until(lambda: of("a1") and of("b1"), timeout_s=60, what="looks at both")
            assert [look["silent"] for look in seen] == [["b1"]] * len(seen)
            assert [look["connections"] for look in of("a1")] == [{}] * len(of("a1"))
