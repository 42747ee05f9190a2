"""Exclusive queues: what a load may say of them, and what becomes of them on real brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.client_addresses import addresses
from rabbitmq_resilience.workload.exchanges import await_bound, establish, rebindings
from rabbitmq_resilience.workload.queues import declare, declared_by_consumers, depths
from rabbitmq_resilience.workload.running_workload import start
from rabbitmq_resilience.workload.workload_model import Workload
from tests.faults.written_steps import refused
from tests.messages import Messages
from tests.workloads.refusals import LINKS

OWN: dict[str, Any] = {"queue_type": "classic", "exclusive": True}
SHARDS = {
    "exchanges": [{"name": "x", "type": "consistent_hash"}],
    "bindings": [{"exchange": "x", "queues": "all"}],
    "publish": [{"exchange": "x", "routing_key": "k%d", "routing_keys": 9}],
}
THREE = Topology(name="three", zones={"a": 1, "b": 1, "c": 1})


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"queue_type": "quorum"}, "exclusive"),
        ({"consumers": 3, "queues": 2}, "exclusive"),
        ({"leaders_on": ["a1"]}, "leaders_on"),
        ({"copy_every": 5}, "copy_every"),
        ({"single_active_consumer": True}, "single_active_consumer"),
        ({"services": [{"name": "one"}]}, "services"),
        ({"consume": "at_drain"}, "consume: at_drain"),
        ({"routing": SHARDS}, "consistent_hash"),
    ],
)
def test_what_does_not_go_with_it_is_refused(fields: dict[str, Any], names: str, message: Messages) -> None:
    with message.of(ValidationError, hide=LINKS) as refusal:
        Workload.model_validate({**OWN, **fields})
    assert names in str(refusal.value)


def test_it_needs_no_broker_that_has_transient_queues() -> None:
    assert Workload.model_validate({**OWN, "durable": False}).needs == frozenset()
    assert Workload(queue_type="classic", durable=False).needs


def test_what_acts_on_a_queue_and_balancers_are_refused(message: Messages) -> None:
    purge = {"at_s": 1, "for_s": 5, "fault": "purge_queue", "queue": "q1"}
    message(refused(purge, driver="local", workload=OWN))
    message(refused(driver="local", topology="three_nodes_two_balancers", workload=OWN))


def test_only_consumers_declare_them() -> None:
    workload = Workload.model_validate({**OWN, "limits": {"max_length": 5}, "priorities": [0, 3]})
    told = declared_by_consumers(workload, THREE)
    assert told == {
        "durable": True,
        "exclusive": True,
        "arguments": {"x-queue-type": "classic", "x-max-priority": 3, "x-max-length": 5},
    }
    assert declared_by_consumers(Workload(queue_type="classic"), THREE) is None


@pytest.mark.brokers
def test_a_queue_goes_with_its_consumer_and_comes_back_with_it(tmp_path: Path) -> None:
    topology = topology_catalogue.load("three_nodes_three_zones")
    workload = Workload.model_validate({**OWN, "queues": 4, "consumers": 3, "publishers": 2, "message_bytes": 100})
    vhost = "exclusive"
    with LocalCluster.form(topology) as cluster:
        api = cluster.api("a1")
        places = declare(cluster, workload, vhost=vhost)
        assert [(place["leader"], place["consumer"]) for place in places.values()] == [
            ("a1", 0),
            ("b1", 1),
            ("c1", 2),
            ("a1", 0),
        ]
        assert api.queues(vhost) == []
        told: dict[str, Any] = {"declared_with": declared_by_consumers(workload, topology), "vhost": vhost}
        told |= {"addresses": addresses(cluster), "queues": list(places), "run": 1, "seed": 1, "folder": tmp_path}
        with start(workload, **told) as load:
            load.await_connected(timeout_s=60)
            load.publish()
            wait_until(lambda: load.progress().received > 200, timeout_s=60, what="deliveries")
            seen = api.queues(vhost, columns=["name", "node", "exclusive"])
            where = {queue["name"]: (queue["node"], queue["exclusive"]) for queue in seen}
            assert where == {name: (cluster.broker_name(place["leader"]), True) for name, place in places.items()}
            cluster.kill("b1")
            wait_until(
                lambda: {queue["name"]: queue["node"] for queue in api.queues(vhost)}.get("q2", ""),
                timeout_s=60,
                what="the queue of the consumer that lost its broker",
                until=lambda node: node in map(cluster.broker_name, ("a1", "c1")),
            )
            load.stop_publishers(timeout_s=30)
            assert load.drain(lambda: depths(api, vhost), idle_s=6, timeout_s=60).complete
        load.check()
        wait_until(lambda: not api.queues(vhost), timeout_s=30, what="the queues to go with their consumers")


NEWS = {
    "exchanges": [{"name": "news", "type": "topic"}, {"name": "all", "type": "headers"}],
    "bindings": [
        {"exchange": "news", "queues": "all", "routing_key": "news.#"},
        {"exchange": "news", "to_exchange": "all", "routing_key": "old.#"},
        {"exchange": "all", "queues": "q2", "headers": {"for": "q2"}},
    ],
    "publish": [{"exchange": "news", "routing_key": "news.%d", "routing_keys": 5}],
}


def test_consumers_bind_them_too() -> None:
    workload = Workload.model_validate({**OWN, "queues": 2, "consumers": 2, "routing": NEWS})
    assert rebindings(workload) == (
        (0, "news", "news.#", {}),
        (1, "news", "news.#", {}),
        (1, "all", "", {"x-match": "all", "for": "q2"}),
    )
    assert rebindings(Workload.model_validate({"queue_type": "classic", "queues": 2, "routing": NEWS})) == ()


@pytest.mark.brokers
def test_a_consumer_that_comes_back_binds_its_queue_again(tmp_path: Path, cluster: LocalCluster) -> None:
    fields = {"queues": 2, "consumers": 2, "message_bytes": 100, "rate_per_s": 100, "routing": NEWS}
    workload = Workload.model_validate({**OWN, **fields})
    vhost, api = "bound", cluster.api(cluster.topology.node_names[0])
    places = declare(cluster, workload, vhost=vhost)
    routes = establish(cluster, workload, vhost=vhost)
    told: dict[str, Any] = {"declared_with": declared_by_consumers(workload, cluster.topology), "vhost": vhost}
    told |= {"addresses": addresses(cluster), "queues": list(places), "run": 1, "seed": 1, "folder": tmp_path}
    try:
        with start(workload, routes=routes, alone=["consumer:0"], **told) as load:
            load.await_connected(timeout_s=60)
            await_bound(cluster, workload, vhost=vhost)
            load.publish()
            wait_until(lambda: min(load.received_by_consumer()) > 50, timeout_s=60, what="deliveries to both")
            load.worker("consumer-0").kill()
            wait_until(lambda: len(api.queues(vhost)) == 1, timeout_s=60, what="the queue to go with its consumer")
            before = load.received_by_consumer()[0]
            load.worker("consumer-0").start()
            wait_until(lambda: load.received_by_consumer()[0] > before + 50, timeout_s=60, what="deliveries again")
    finally:
        api.delete_vhost(vhost)
