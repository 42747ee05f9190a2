"""Generated bindings on real brokers: messages go where ``workload.matching`` says, and what is wrong is noticed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rabbitmq_resilience.model.node_options import NodeOptions
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload import running_workload as workloads
from rabbitmq_resilience.workload.client_addresses import addresses
from rabbitmq_resilience.workload.exchanges import RoutingNotProven, declare_routing, establish, prove
from rabbitmq_resilience.workload.queues import declare, depths
from rabbitmq_resilience.workload.routing import HASH_PLUGIN
from rabbitmq_resilience.workload.services import Service
from rabbitmq_resilience.workload.workload_model import Workload
from tests.needs import skipped_without

pytestmark = pytest.mark.brokers

WORDS = ("", "a", "b", "eur", "*", "#")


@pytest.fixture(scope="module")
def routing_cluster() -> Iterator[LocalCluster]:
    topology = Topology(name="routing_tests", zones={"a": 1, "b": 1, "c": 1})
    with (
        skipped_without(),
        LocalCluster.form(topology, equipment=NodeOptions(plugins=frozenset({HASH_PLUGIN}))) as made,
    ):
        yield made


@contextlib.contextmanager
def declared(cluster: LocalCluster, workload: Workload, vhost: str) -> Iterator[None]:
    declare(cluster, workload, vhost=vhost)
    try:
        yield
    finally:
        cluster.api("a1").delete_vhost(vhost)


def generated(random: Random) -> dict[str, Any]:
    """Some of everything, on the queues q1 to q6: q5 and q6 are shards."""

    def key(words: tuple[str, ...]) -> str:
        return ".".join(random.choice(words) for _ in range(random.randrange(4)))

    plain = ["q1", "q2", "q3", "q4"]
    kinds = ("direct", "topic", "fanout", "headers")
    bindings: list[dict[str, Any]] = [
        {"exchange": "hash", "queues": ["q6", "q5"]},
        {"exchange": "rest", "queues": "q4"},
    ]
    for kind in kinds:
        for _ in range(8):
            to = random.choice(
                [{"queues": random.sample(plain, 2)}] * 4 + [{"to_exchange": random.choice([*kinds, "hash"])}]
            )
            asked = {name: random.choice("12") for name in random.sample(["h", "i"], random.randrange(3))}
            headers = {"headers": asked, "match": random.choice(["all", "any"])} if kind == "headers" else {}
            bindings.append(
                {"exchange": kind, "routing_key": key(WORDS if kind == "topic" else WORDS[:4]), **to, **headers}
            )
    publish: list[dict[str, Any]] = [
        {"exchange": kind, "routing_key": key(WORDS[:4]), "headers": {"h": random.choice("12")}}
        for kind in kinds
        for _ in range(25)
    ]
    publish += [{"exchange": "hash", "routing_key": "n.%d", "routing_keys": 50}, {"routing_key": "q2"}]
    exchanges = [{"name": kind, "type": kind, "alternate_exchange": "rest"} for kind in kinds]
    exchanges += [{"name": "hash", "type": "consistent_hash"}, {"name": "rest", "type": "fanout"}]
    return {"exchanges": exchanges, "bindings": bindings, "publish": publish}


def test_messages_go_where_they_are_said_to_go(routing_cluster: LocalCluster) -> None:
    stated: dict[str, Any] = {"queue_type": "classic", "queues": 6, "routing": generated(Random(7))}  # noqa: S311
    workload = Workload.model_validate(stated)
    queues, routing = workload.queue_names, workload.routing
    assert routing is not None
    with declared(routing_cluster, workload, "routing"):
        routes = establish(routing_cluster, workload, vhost="routing")
        assert len(routes.ends) == len(routing.turns) == 151
        assert routes.shards == ((4, 5),)
        assert {4, 5} <= set(routes.queues.tolist()), "both shards have messages"
        assert all(depth.ready == depth.unacked == 0 for depth in depths(routing_cluster.api("a1"), "routing").values())
        routing_cluster.api("b1").bind_queue("routing", "q1", exchange="rest", routing_key="more")
        with pytest.raises(RoutingNotProven, match=r"not .* q1"):
            prove(routing_cluster, routing, queues, vhost="routing")
        declare_routing(routing_cluster, routing, queues, vhost="routing")  # which may be done twice


def test_two_services_get_the_same_messages_each_at_its_pace(routing_cluster: LocalCluster, tmp_path: Path) -> None:
    both = {"exchange": "orders", "queues": "all", "routing_key": "order.#"}
    routing = {
        "exchanges": [{"name": "orders", "type": "topic"}],
        "bindings": [both],
        "publish": [{"exchange": "orders", "routing_key": "order.%d", "routing_keys": 2000}],
    }
    services = (Service(name="billing"), Service(name="audit", consumers=2, processing_ms=2))
    stated = {"queue_type": "classic", "services": services, "rate_per_s": 100, "publishers": 2, "routing": routing}
    workload = Workload.model_validate(stated)
    with declared(routing_cluster, workload, "services"):
        routes = establish(routing_cluster, workload, vhost="services")
        with workloads.start(
            workload,
            addresses=addresses(routing_cluster),
            queues=workload.queue_names,
            routes=routes,
            vhost="services",
            run=1,
            seed=2,
            folder=tmp_path,
        ) as load:
            load.await_connected(timeout_s=120)
            load.publish()
            wait_until(lambda: load.progress().confirmed > 100, timeout_s=120, what="some confirms")
            assert load.stop_publishers(timeout_s=120)
            drained = load.drain(lambda: depths(routing_cluster.api("a1"), "services"), idle_s=5, timeout_s=120)
            assert (drained.complete, drained.unconsumed) == (True, 0)
            assert drained.confirmed == 2 * load.progress().confirmed
            billing, *audit = load.received_by_consumer()
            assert min(billing, sum(audit)) >= load.progress().confirmed
