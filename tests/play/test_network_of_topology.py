"""The network of a topology on real brokers: it is there, it is proven, and its round trips show what is done to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rabbitmq_resilience.history.round_trips import Distribution
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import ANY_CLIENT, Link
from rabbitmq_resilience.model.network_settings import Delay
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.runner.round_trip_watch import BEFORE, prove_network, round_trips_watched
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.workload.client_addresses import addresses
from tests.whole import await_whole

pytestmark = pytest.mark.plays

FAR = Topology.model_validate(
    {
        "name": "far",
        "zones": {"a": 2, "b": 1},
        "network": {"between_zones": {"latency_ms": 20, "jitter_ms": 2}, "clients": {"latency_ms": 10}},
    }
)
A_TO_B, WITHIN, OF_CLIENTS = Link("a1", "b1"), Link("a1", "a2"), Link(ANY_CLIENT, "a1")


@pytest.fixture(scope="module")
def formed() -> Iterator[LocalCluster]:
    with LocalCluster.form(FAR, proxied=FAR.network_links) as cluster:
        yield cluster


@pytest.fixture
def cluster(formed: LocalCluster) -> LocalCluster:
    await_whole(formed)
    return formed


def measured(cluster: LocalCluster, *, rounds: int) -> dict[Link, list[float | None]]:
    round_trips = cluster.round_trips()
    assert round_trips is not None
    with round_trips:
        told = [round_trips.measure() for _ in range(rounds)]
    return {way: [one[way] for one in told] for way in told[0]}


def test_round_trips_are_as_long_as_the_topology_says(cluster: LocalCluster) -> None:
    told = {way: Distribution.of(trips_ms) for way, trips_ms in measured(cluster, rounds=20).items()}
    assert told[A_TO_B].least_ms >= 2 * 18 - 1
    assert told[OF_CLIENTS].least_ms >= 2 * 10 - 1
    assert told[WITHIN].least_ms < 10
    assert all(one.lost == 0 for one in told.values())


def test_it_is_proven_and_what_is_not_so_is_reported(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    prove_network(cluster)
    monkeypatch.setattr("rabbitmq_resilience.runner.round_trip_watch.PROVEN_WITHIN_S", 1.0)
    monkeypatch.setattr(Topology, "delay_of", lambda *_: Delay(latency_ms=300))
    with pytest.raises(ClusterError, match="600 to 600 ms"):
        prove_network(cluster)


def test_a_cut_and_a_delay_are_seen_by_round_trips_and_leave_the_network_as_it_was(cluster: LocalCluster) -> None:
    cluster.links.cut([A_TO_B, A_TO_B.back])
    cut = measured(cluster, rounds=1)
    cluster.links.restore([A_TO_B, A_TO_B.back])
    cluster.links.delay([OF_CLIENTS], latency_ms=100, jitter_ms=0)
    slow = measured(cluster, rounds=5)
    cluster.links.undelay([OF_CLIENTS])
    assert cut[A_TO_B] == [None]
    assert None not in cut[Link("a2", "b1")]
    assert Distribution.of(slow[OF_CLIENTS]).least_ms >= 100 + 2 * 10 - 1
    prove_network(cluster)
    assert cluster.links.clean


def test_what_is_measured_is_recorded_from_before_the_load_on(cluster: LocalCluster) -> None:
    told: list[dict[str, Any]] = []

    def record(kind: str, **fields: Any) -> None:
        assert kind == "round_trips"
        told.append(fields["trips_ms"])

    with round_trips_watched(cluster, record):
        assert len(told) == 1
    assert len(told[0]["a1->b1"]) == BEFORE


def test_all_clients_go_over_the_slow_links(cluster: LocalCluster) -> None:
    assert [place.port for place in addresses(cluster)] != [cluster.amqp_endpoint(node).port for node in FAR.node_names]
