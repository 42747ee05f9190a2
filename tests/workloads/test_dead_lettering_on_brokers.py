"""Dead letters on real brokers: just those that are owed arrive, and what queues keep of them is seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest

from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.client_addresses import addresses
from rabbitmq_resilience.workload.dead_lettering import Rejected
from rabbitmq_resilience.workload.drain import Depth
from rabbitmq_resilience.workload.exchanges import establish
from rabbitmq_resilience.workload.queues import declare, depths, own_arguments
from rabbitmq_resilience.workload.running_workload import RunningWorkload, start
from rabbitmq_resilience.workload.workload_model import Workload
from tests.workloads.running import deliveries, messages, publishes

pytestmark = pytest.mark.brokers

SERVICES = [{"name": "orders"}, {"name": "failed"}]
SURE = {"to": "failed", "strategy": "at_least_once", "reject_one_in": 1}

_numbers = itertools.count(1)


@contextmanager
def running(cluster: LocalCluster, folder: Path, **fields: Any) -> Iterator[RunningWorkload]:
    workload = Workload.model_validate({"message_bytes": 200, "rate_per_s": 500, **fields})
    number = next(_numbers)
    vhost = f"dead-letters-{number}"
    queues = list(declare(cluster, workload, vhost=vhost))
    routes = establish(cluster, workload, vhost=vhost)
    try:
        told: dict[str, Any] = {"queues": queues, "routes": routes, "vhost": vhost}
        with start(workload, addresses=addresses(cluster), run=number, seed=1, folder=folder, **told) as load:
            load.await_connected(timeout_s=60)
            load.publish()
            wait_until(lambda: load.progress().confirmed >= 1000, timeout_s=60, what="confirms")
            load.stop_publishers(timeout_s=30)
            drained = load.drain(lambda: depths(cluster.api("a1"), vhost), idle_s=6, timeout_s=60)
            assert (drained.complete, drained.unconsumed) == (True, 0), drained.detail
            yield load
        load.check()
    finally:
        cluster.api("a1").delete_vhost(vhost)


@pytest.mark.parametrize(
    "fields",
    [
        {"dead_letters": {**SURE, "reject_one_in": 3}},
        {"dead_letters": {"to": "failed", "reject_one_in": 1}, "ack_every": 20, "queue_type": "classic"},
        {"dead_letters": {"to": "failed", "reject_one_in": 2}, "ack_every": 1},
    ],
)
def test_what_is_rejected_arrives_as_a_dead_letter_and_nothing_else(
    cluster: LocalCluster, tmp_path: Path, fields: dict[str, Any]
) -> None:
    services = [{"name": "orders", "queues": 2, "consumers": 1}, {"name": "failed"}]
    with running(cluster, tmp_path, publishers=2, services=services, **fields):
        pass
    rejected = Rejected(fields["dead_letters"]["reject_one_in"])
    sent = messages(publishes(tmp_path), Outcome.CONFIRMED)
    rows = deliveries(tmp_path)
    assert messages([row for row in rows if row["queue"] < 2]) == sent
    letters_read = [row for row in rows if row["queue"] == 2]
    assert messages(letters_read) == {message for message in sent if rejected(*message)}
    assert len(letters_read) == len(messages(letters_read))
    assert {row["queue"] for row in rows if not rejected(row["publisher"], row["sequence"])} <= {0, 1}


def routing(*queues: str) -> dict[str, Any]:
    """Messages go to all of the queues; those of the exchange ``dead`` to both queues of dead letters."""
    return {
        "exchanges": [{"name": "in", "type": "fanout"}, {"name": "dead", "type": "topic"}],
        "bindings": [
            {"exchange": "in", "queues": queues},
            {"exchange": "dead", "routing_key": "order.#", "queues": ["failed-1", "failed-2"]},
        ],
        "publish": [{"exchange": "in", "routing_key": "order.%d", "routing_keys": 5}],
    }


FAILED = {"name": "failed", "queues": 2, "consumers": 2}


@pytest.mark.parametrize("key", [None, "order.failed"])
def test_dead_letters_go_where_their_routing_key_leads(cluster: LocalCluster, tmp_path: Path, key: str | None) -> None:
    """Each to both queues, by the key that it keeps or by another one."""
    services = [{"name": "orders"}, FAILED]
    letters = {"to": "failed", "exchange": "dead", "routing_key": key, "reject_one_in": 3}
    with running(cluster, tmp_path, services=services, dead_letters=letters, routing=routing("orders-1")):
        pass
    rejected, rows = Rejected(3), deliveries(tmp_path)
    sent = messages(publishes(tmp_path), Outcome.CONFIRMED)
    came = [[(row["publisher"], row["sequence"]) for row in rows if row["queue"] == queue] for queue in range(3)]
    assert set(came[0]) == sent
    owed = sorted(message for message in sent if rejected(*message))
    assert sorted(came[1]) == sorted(came[2]) == owed


def test_each_queue_of_a_message_has_dead_letters_of_its_own(cluster: LocalCluster, tmp_path: Path) -> None:
    """Of consumers that reject before they work, too."""
    services = [{"name": "orders", "processing_ms": 1}, {"name": "copies"}, FAILED]
    fields = {"services": services, "dead_letters": {"to": "failed", "reject_one_in": 3}, "acks": "early"}
    with running(cluster, tmp_path, routing=routing("orders-1", "copies-1"), **fields):
        pass
    rejected, rows = Rejected(3), deliveries(tmp_path)
    sent = messages(publishes(tmp_path), Outcome.CONFIRMED)
    came = [{(row["publisher"], row["sequence"]) for row in rows if row["queue"] == queue} for queue in range(4)]
    owed = {message for message in sent if rejected(*message)}
    assert came == [sent, sent, owed, owed]


def test_what_expires_arrives_as_a_dead_letter(cluster: LocalCluster, tmp_path: Path) -> None:
    """The consumer takes longer for what it holds than a message may wait."""
    services = [{"name": "orders", "processing_ms": 20}, {"name": "failed"}]
    fields = {"services": services, "dead_letters": {"to": "failed"}, "limits": {"message_ttl_ms": 200}}
    with running(cluster, tmp_path, prefetch=5, ack_every=1, queue_type="classic", **fields):
        pass
    rows = deliveries(tmp_path)
    accepted, expired = ({m for m in messages([row for row in rows if row["queue"] == one])} for one in (0, 1))
    assert len(expired) > 100
    assert accepted | expired == messages(publishes(tmp_path), Outcome.CONFIRMED)
    assert not accepted & expired


def test_what_a_queue_keeps_of_dead_letters_is_reported(cluster: LocalCluster) -> None:
    """As long as no queue takes them, none is lost: who waits for them must not take that for an empty queue."""
    vhost, api = "kept", cluster.api("a1")
    arguments = own_arguments(Workload.model_validate({"services": SERVICES, "dead_letters": SURE}), "orders-1")
    api.create_vhost(vhost)
    try:
        api.declare_queue(vhost, "orders-1", arguments={"x-queue-type": "quorum", **arguments})
        place = pika.ConnectionParameters("127.0.0.1", cluster.amqp_endpoint("a1").port, vhost)
        with closing(pika.BlockingConnection(place)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for _ in range(5):
                channel.basic_publish("", "orders-1", b"order")
            for _ in range(3):
                got, _, _ = channel.basic_get("orders-1")
                channel.basic_reject(got.delivery_tag, requeue=False)
            told = {"orders-1": Depth(ready=2, unacked=0, dead_letters=3)}
            wait_until(lambda: depths(api, vhost) == told, timeout_s=30, what="the numbers of the queue")
    finally:
        api.delete_vhost(vhost)
