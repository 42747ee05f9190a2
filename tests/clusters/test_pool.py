"""What the pool keeps and what it throws away, on clusters that are only pretended."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.node_options import NONE, NodeOptions
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.pool import ClusterPool
from tests.clock import waits_by_clock

THREE = Topology(name="three", zones={"a": 1, "b": 1, "c": 1})
FOUR = Topology(name="four", zones={"a": 2, "b": 2})
A_B = frozenset({Link("a1", "b1"), Link("b1", "a1")})
OF_CLIENT = frozenset({Link("publisher:0", "a1"), Link("a1", "publisher:0")})
A_C = frozenset({Link("a1", "c1"), Link("c1", "a1")})


class PretendedCluster:
    def __init__(self, topology: Topology, proxied: frozenset[Link]) -> None:
        self.topology = topology
        self.links = SimpleNamespace(proxied=proxied, clean=True)
        self.vhosts = ["/"]
        self.partitions: list[str] = []
        self.alarmed = False
        self.untold: set[str] = set()
        self.formed = True
        self.reconfigured = False
        self.equipment = NONE
        self.closed = False

    def await_formed(self, *, timeout_s: float) -> None:
        if not self.formed:
            raise ClusterError(f"b1 is down after {timeout_s} s")

    def api(self, node: str) -> SimpleNamespace:
        return SimpleNamespace(
            vhosts=lambda: self.vhosts,
            nodes=lambda: [{"partitions": self.partitions, "mem_alarm": self.alarmed}],
            silent_nodes=lambda: [self.broker_name(one) for one in self.untold if one == node],
        )

    def broker_name(self, node: str) -> str:
        return f"{node}@localhost"

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def pool() -> ClusterPool:
    def form(topology: Topology, *, proxied: Collection[Link], equipment: NodeOptions = NONE, **_more: Any) -> Any:
        cluster = PretendedCluster(topology, frozenset(proxied))
        cluster.equipment = equipment
        return cluster

    return ClusterPool(form)


def pretended(pool: ClusterPool, topology: Topology, proxied: Collection[Link] = ()) -> PretendedCluster:
    cluster: Any = pool.acquire(topology, proxied)
    assert isinstance(cluster, PretendedCluster)
    return cluster


def test_an_equal_healthy_cluster_is_kept(pool: ClusterPool) -> None:
    first = pretended(pool, THREE, A_B)

    assert pretended(pool, THREE.model_copy(), A_B) is first


@pytest.mark.parametrize(
    ("topology", "proxied"),
    [(FOUR, A_B), (THREE, A_C), (THREE, A_B | A_C), (THREE, A_B | OF_CLIENT), (THREE, frozenset())],
)
def test_another_need_makes_another_cluster(pool: ClusterPool, topology: Topology, proxied: frozenset[Link]) -> None:
    first = pretended(pool, THREE, A_B)
    second = pretended(pool, topology, proxied)

    assert first.closed
    assert (second.topology, second.links.proxied) == (topology, proxied)


def _toxic(cluster: PretendedCluster) -> None:
    cluster.links.clean = False


def _down(cluster: PretendedCluster) -> None:
    cluster.formed = False


def _parted(cluster: PretendedCluster) -> None:
    cluster.partitions = ["c1@localhost"]


def _alarmed(cluster: PretendedCluster) -> None:
    cluster.alarmed = True


def _silent(cluster: PretendedCluster) -> None:
    cluster.untold.add("b1")


def _littered(cluster: PretendedCluster) -> None:
    cluster.vhosts = ["/", "run-1"]


def _reconfigured(cluster: PretendedCluster) -> None:
    cluster.reconfigured = True


@pytest.mark.parametrize("spoil", [_toxic, _down, _parted, _alarmed, _silent, _littered, _reconfigured])
def test_an_unfit_cluster_is_replaced(pool: ClusterPool, spoil: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits_by_clock(monkeypatch)
    first = pretended(pool, THREE)
    spoil(first)

    assert pretended(pool, THREE) is not first
    assert first.closed


def test_leaving_the_pool_ends_its_cluster(pool: ClusterPool) -> None:
    with pool:
        cluster = pretended(pool, THREE)

    assert cluster.closed


def test_a_node_gets_a_disk_or_a_clock_before_it_starts_and_keeps_it(pool: ClusterPool) -> None:
    fitted = NodeOptions(disks={"a1": 2**27}, clocks=frozenset({"b1"}))
    plain = pretended(pool, THREE)

    first: Any = pool.acquire(THREE, (), fitted)
    assert first is not plain
    assert first.equipment == fitted
    assert pool.acquire(THREE, (), NodeOptions(disks={"a1": 2**27}, clocks=frozenset({"b1"}))) is first
    assert pool.acquire(THREE, (), NodeOptions(clocks=frozenset({"b1"}))) is not first
    assert pretended(pool, THREE).equipment == NONE
