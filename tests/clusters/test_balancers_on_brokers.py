"""Load balancers before real brokers: who gets clients, and what becomes of a broker that is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.server_properties import server_properties
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.sut.running import RunningCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.client_addresses import addresses
from tests.drivers import DRIVEN, formed_by
from tests.whole import await_whole

pytestmark = pytest.mark.core

#: Two of its brokers die at once. The third would pause, and now and then they would all wait for each other's tables.
BALANCED = Topology.model_validate(
    {
        "name": "balanced",
        "partition_handling": "ignore",
        "zones": {"a": 1, "b": 1, "c": 1},
        "balancers": {"count": 2, "check": {"inter_s": 0.5, "rise": 2, "fall": 2}},
        "without_clients": ["c1"],
        "ram_nodes": ["b1"],
    }
)
#: Of the second balancer no link is proxied.
TO_B1 = Link("balancer:0", "b1")


@pytest.fixture(scope="module", params=DRIVEN)
def formed(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    with formed_by(request.param, BALANCED, proxied=[TO_B1, Link("publisher:0", "balancer:0")]) as cluster:
        yield cluster


@pytest.fixture
def cluster(formed: RunningCluster) -> RunningCluster:
    await_whole(formed)
    return formed


def node_behind(cluster: RunningCluster, balancer: str) -> str:
    """The broker that a client gets there, by what it says of itself; empty if none takes it."""
    try:
        return str(server_properties(cluster.amqp_endpoint(balancer), Access(), timeout_s=10).get("node"))
    except OSError:
        return ""


def nodes_behind(cluster: RunningCluster, balancer: str, *, times: int = 6) -> Counter[str]:
    return Counter(node_behind(cluster, balancer) for _ in range(times))


def await_behind(cluster: RunningCluster, balancer: str, nodes: set[str]) -> None:
    wait_until(
        lambda: set(nodes_behind(cluster, balancer)),
        timeout_s=60,
        what=f"{balancer} to send clients to {nodes}",
        until=lambda seen: seen == nodes,
    )


@pytest.mark.parametrize("balancer", BALANCED.balancer_names)
def test_clients_are_spread_over_the_nodes_that_take_some(cluster: RunningCluster, balancer: str) -> None:
    await_behind(cluster, balancer, {"a1", "b1"})


def test_clients_are_given_the_balancers_and_their_own_links(cluster: RunningCluster) -> None:
    places = addresses(cluster)
    assert [place.node for place in places] == ["balancer:0", "balancer:1"]
    own = addresses(cluster, client="publisher:0")
    assert own[0].port != places[0].port
    assert own[1] == places[1]


def test_ram_nodes_are_there_and_others_are_not(cluster: RunningCluster) -> None:
    kinds = {cluster.node_of(node["name"]): node["type"] for node in cluster.api("a1").nodes()}
    assert kinds == {"a1": "disc", "b1": "ram", "c1": "disc"}


@pytest.mark.parametrize("balancer", ["balancer:0", pytest.param("balancer:1", marks=pytest.mark.brokers)])
def test_a_broker_that_died_gets_no_one_until_it_is_back(cluster: RunningCluster, balancer: str) -> None:
    """Also where a proxy would accept connections for it."""
    await_behind(cluster, balancer, {"a1", "b1"})
    cluster.kill("b1")
    await_behind(cluster, balancer, {"a1"})
    cluster.start("b1")
    await_whole(cluster)
    await_behind(cluster, balancer, {"a1", "b1"})


@pytest.mark.brokers
def test_brokers_that_come_back_at_each_others_address_are_found(cluster: RunningCluster) -> None:
    for node in ("a1", "b1"):
        cluster.kill(node)
    await_behind(cluster, "balancer:1", {""})
    for node in ("b1", "a1"):  # an engine gives addresses in the order of starts
        cluster.start(node)
    await_whole(cluster)
    await_behind(cluster, "balancer:1", {"a1", "b1"})


def test_a_broker_behind_a_cut_link_gets_no_one_from_that_balancer(cluster: RunningCluster) -> None:
    cluster.links.cut([TO_B1, TO_B1.back])
    try:
        await_behind(cluster, "balancer:0", {"a1"})
        await_behind(cluster, "balancer:1", {"a1", "b1"})
    finally:
        cluster.links.restore([TO_B1, TO_B1.back])
    await_behind(cluster, "balancer:0", {"a1", "b1"})


def test_each_says_what_it_did_and_what_it_was_given(cluster: RunningCluster) -> None:
    assert set(cluster.configurations()) == {"balancer-0.cfg", "balancer-1.cfg"}
    assert "amqp" in cluster.logs()["balancer-1"].read_text()


def test_all_end_with_the_cluster() -> None:
    topology = Topology.model_validate({"name": "small", "zones": {"a": 1}, "balancers": {"count": 2}})
    with LocalCluster.form(topology) as cluster:
        lives = [cluster.balancers.life(name) for name in topology.balancer_names]
        assert None not in lives
    assert {cluster.balancers.process(name) for name in topology.balancer_names} == {"gone"}
