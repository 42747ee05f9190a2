from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from rabbitmq_resilience.history.events import DeclarationEvent
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.declarations import DECLARATIONS_MAX, KINDS, declaring, planned_items, read_metadata
from rabbitmq_resilience.workload.queues import declare
from rabbitmq_resilience.workload.workload_model import Workload


@pytest.mark.parametrize("nodes", [3, 4, 5, 7])
def test_every_node_is_asked_for_every_kind_and_no_name_comes_twice(nodes: int) -> None:
    plans = [planned_items(index, nodes) for index in range(nodes)]
    names = [item.name for plan in plans for item in plan]
    assert len(set(names)) == len(names) == DECLARATIONS_MAX
    for plan in plans:
        assert {item.kind for item in plan[: len(KINDS)]} == set(KINDS)
    for turn in itertools.islice(zip(*plans, strict=False), 5):
        assert {item.kind for item in turn} == set(KINDS)


@pytest.mark.brokers
@pytest.mark.parametrize("queue_type", ["quorum", "mirrored", "classic"])
def test_what_is_created_is_known_to_every_node(
    cluster: LocalCluster, queue_type: Any, has_queue_type: Callable[[str], None]
) -> None:
    has_queue_type(queue_type)
    workload = Workload(queue_type=queue_type, queues=2, declare_every_s=0.1)
    vhost = f"declarations-{queue_type}"
    events: list[DeclarationEvent] = []

    def record(kind: str, **fields: Any) -> None:
        assert kind == "declaration"
        events.append(DeclarationEvent(t_us=0, **fields))

    def created() -> list[DeclarationEvent]:
        return [event for event in events if event.state == "created"]

    declare(cluster, workload, vhost=vhost)
    try:
        with declaring(cluster, workload, vhost=vhost, record=record):
            wait_until(lambda: len(created()) >= 12, timeout_s=60, what="some declarations")
        metadata = read_metadata(cluster, vhost, timeout_s=60)
    finally:
        cluster.api("a1").delete_vhost(vhost)

    items = sorted(event.item for event in created())
    assert {event.state for event in events} == {"asked", "created"}
    assert 2 * len(items) == len(events)
    assert {event.node for event in events} == {"a1", "b1", "c1"}
    assert {item.split()[0] for item in items} == set(KINDS)
    assert metadata == dict.fromkeys(("a1", "b1", "c1"), items)


@pytest.mark.brokers
def test_nothing_is_declared_unless_it_is_asked_for(cluster: LocalCluster) -> None:
    def record(kind: str, **fields: Any) -> None:
        raise AssertionError(f"{kind}: {fields}")

    with declaring(cluster, Workload(), vhost="nowhere", record=record):
        pass


@pytest.mark.brokers
def test_a_node_that_does_not_know_the_virtual_host_shows_nothing(cluster: LocalCluster) -> None:
    assert read_metadata(cluster, "nowhere", timeout_s=0) == dict.fromkeys(("a1", "b1", "c1"))
