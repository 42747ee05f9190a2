from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.drain import DepthsUnknown
from rabbitmq_resilience.workload.queue_settings import Mirroring
from rabbitmq_resilience.workload.queues import (
    declare,
    depths,
    leader_nodes,
    member_count,
    queue_arguments,
    queue_policy,
)
from rabbitmq_resilience.workload.workload_model import Workload
from tests.messages import Messages

FIVE = Topology(name="five", zones={"a": 2, "b": 2, "c": 1})


@pytest.mark.parametrize(
    ("leaders_on", "expected"),
    [
        ((), ["a1", "a2", "b1", "b2", "c1", "a1"]),
        (("b2",), ["b2"] * 6),
        (("zone:b", "c1"), ["b1", "b2", "c1", "b1", "b2", "c1"]),
    ],
)
def test_leaders_are_placed_in_turn(leaders_on: tuple[str, ...], expected: list[str]) -> None:
    assert leader_nodes(Workload(queues=6, leaders_on=leaders_on), FIVE) == expected


def test_a_leader_that_is_nowhere_is_refused(message: Messages) -> None:
    with message.of(ValueError):
        leader_nodes(Workload(leaders_on=("zone:x",)), FIVE)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"queue_type": "classic"}, 1),
        ({"queue_type": "quorum"}, 5),
        ({"queue_type": "quorum", "group_size": 3}, 3),
        ({"queue_type": "mirrored"}, 5),
        ({"queue_type": "mirrored", "mirroring": Mirroring(ha_mode="exactly", ha_params=2)}, 2),
    ],
)
def test_member_counts(fields: dict[str, Any], expected: int) -> None:
    assert member_count(Workload(**fields), FIVE) == expected


def described(cluster: LocalCluster, vhost: str) -> list[dict[str, Any]]:
    """The queues with their policies, which come with the first statistics."""
    return wait_until(
        lambda: cluster.api("a1").get(f"queues/{vhost}"),
        timeout_s=60,
        what="the queues' policies",
        until=lambda rows: all("effective_policy_definition" in row for row in rows),
    )


@pytest.mark.brokers
@pytest.mark.parametrize(
    "workload",
    [
        Workload(queue_type="classic", queues=3),
        Workload(queue_type="quorum", queues=4),
        Workload(queue_type="quorum", queues=2, leaders_on=("zone:c",), group_size=1),
        Workload(queue_type="mirrored", queues=3),
        Workload(queue_type="mirrored", queues=2, mirroring=Mirroring(ha_mode="exactly", ha_params=2)),
        Workload(queue_type="mirrored", queues=2, lazy=True),
        Workload(queue_type="quorum", max_in_memory_length=0),
    ],
    ids=["classic", "quorum", "group_of_one", "mirrored", "two_mirrors", "lazy", "never_in_memory"],
)
def test_queues_are_where_they_belong(
    cluster: LocalCluster,
    workload: Workload,
    request: pytest.FixtureRequest,
    has_queue_type: Callable[[str], None],
) -> None:
    has_queue_type(workload.queue_type)
    vhost = f"queues-{request.node.callspec.id}"
    places = declare(cluster, workload, vhost=vhost)
    try:
        assert list(places) == [f"q{i + 1}" for i in range(workload.queues)]
        assert [place["leader"] for place in places.values()] == leader_nodes(workload, cluster.topology)
        copies = member_count(workload, cluster.topology)
        for place in places.values():
            assert place["type"] == workload.queue_type
            assert place["members"][0] == place["leader"]
            assert len(set(place["members"])) == copies
        for queue in described(cluster, vhost):
            assert queue["effective_policy_definition"] == queue_policy(workload)
            assert queue["arguments"] == queue_arguments(workload, cluster.topology)
    finally:
        cluster.api("a1").delete_vhost(vhost)


@pytest.mark.brokers
def test_no_depths_of_a_virtual_host_that_is_not_there(cluster: LocalCluster) -> None:
    with pytest.raises(DepthsUnknown, match="nowhere"):
        depths(cluster.api("a1"), "nowhere")
