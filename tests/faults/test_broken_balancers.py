"""The faults of load balancers and of their links before real brokers: what proves them, and that they are healed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.disconnect import Disconnect
from rabbitmq_resilience.nemesis.fault import FaultContext
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.latency import Latency
from rabbitmq_resilience.nemesis.nemesis import Nemesis
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.nemesis.pause import Pause
from rabbitmq_resilience.sut.running import RunningCluster
from tests.drivers import DRIVEN, formed_by
from tests.whole import await_fit, await_whole

pytestmark = pytest.mark.brokers

BALANCED = topology_catalogue.load("three_nodes_two_balancers")
PROXIED = [Link("publisher:0", "balancer:0"), Link("balancer:0", "b1"), Link("balancer:1", "b1")]


@pytest.fixture(scope="module", params=DRIVEN)
def formed(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    with formed_by(request.param, BALANCED, proxied=PROXIED) as cluster:
        yield cluster


@pytest.fixture
def cluster(formed: RunningCluster) -> Iterator[RunningCluster]:
    await_whole(formed)
    yield formed
    await_whole(formed)
    await_fit(formed)


class Told(dict[str, str]):
    """What was told of each state of one step. Whoever asks for a state that never came sees those that did."""

    def __missing__(self, state: str) -> str:
        raise AssertionError(f"never {state}: {dict(self)}")


def play(cluster: RunningCluster, *steps: AnyFault) -> dict[int, Told]:
    unused: Any = SimpleNamespace(leader_of=None, client_events=lambda _: [])
    told: dict[int, Told] = {}

    def record(kind: str, **fields: Any) -> None:
        assert kind == "fault"
        told.setdefault(fields["step"], Told())[fields["state"]] = fields["detail"]

    Nemesis(steps, FaultContext(cluster, unused, unused), record, seed=1, chaos_s=0).play(lambda: None)
    return told


def test_one_that_dies_refuses_while_the_other_answers(cluster: RunningCluster) -> None:
    before = cluster.balancers.life("balancer:0")
    told = play(cluster, Kill(at_s=0, for_s=8, node="balancer:0"))[0]
    assert re.search("balancer:0 .* (-9|137)", told["proven"])
    assert "refused" in told["proven"]
    assert "balancer:1 answers" in told["proven"]
    assert "answers through each" in told["heal_proven"]
    assert cluster.balancers.life("balancer:0") not in (None, before)


def test_one_that_freezes_answers_no_one_and_goes_on(cluster: RunningCluster) -> None:
    before = cluster.balancers.life("balancer:1")
    told = play(cluster, Pause(at_s=0, for_s=8, node="balancer:1"))[0]
    assert "balancer:1 is suspended" in told["proven"]
    assert "for 1 s" in told["proven"]
    assert "balancer:0 answers" in told["proven"]
    assert "heal_proven" in told
    assert cluster.balancers.life("balancer:1") == before


def test_of_all_that_die_the_brokers_tell(cluster: RunningCluster) -> None:
    told = play(cluster, Kill(at_s=0, for_s=8, node="balancer:all"))[0]
    assert "balancer:0, balancer:1" in told["proven"]
    assert "refused" in told["proven"]
    assert "a1 answers" in told["proven"]
    assert "heal_proven" in told


def test_one_that_is_gone_already_proves_nothing(cluster: RunningCluster) -> None:
    cluster.balancers.kill("balancer:0")
    try:
        told = play(cluster, Kill(at_s=0, for_s=4, node="balancer:0"))[0]
    finally:
        cluster.balancers.start("balancer:0")
    assert "proven" not in told
    assert "was not running" in str(told)


@pytest.mark.parametrize(
    "step",
    [
        Partition(at_s=0, for_s=8, between=("balancer:0", "b1")),
        Partition(at_s=0, for_s=0.5, between=("balancer:0", "b1")),
        Disconnect(at_s=0, for_s=8, between=("balancer:0", "b1")),
        Partition(at_s=0, for_s=8, between=("publisher:0", "balancer:0")),
        Disconnect(at_s=0, for_s=8, between=("publisher:0", "balancer:0")),
        Latency(at_s=0, for_s=8, links="balancer:0 -> b1", latency_ms=80),
        Latency(at_s=0, for_s=8, links="publisher:0 <-> balancer:0", latency_ms=80),
    ],
    ids=lambda step: f"{step.fault} {step.for_s} {'-'.join(getattr(step, 'between', ['links']))}",
)
def test_links_of_balancers_are_broken_and_healed(cluster: RunningCluster, step: AnyFault) -> None:
    told = play(cluster, step)[0]
    assert {"proven", "heal_proven"} <= told.keys(), told


def test_a_balancer_dies_while_a_broker_is_gone(cluster: RunningCluster) -> None:
    told = play(cluster, Kill(at_s=0, for_s=12, node="a1"), Kill(at_s=2, for_s=6, node="balancer:0"))
    assert all({"proven", "heal_proven"} <= states.keys() for states in told.values()), told
