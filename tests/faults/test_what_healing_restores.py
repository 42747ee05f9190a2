"""What healing starts, what it refuses to skip, and what no change may let through."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.stressors import Stressors
from rabbitmq_resilience.nemesis.lose_disk import LoseDiskInjection
from rabbitmq_resilience.nemesis.stress import StressInjection
from rabbitmq_resilience.sut.network.proxied_links import ToxiproxyLinks
from rabbitmq_resilience.sut.network.toxiproxy import Call


class Cluster:
    """Three nodes, of which a1 has ended, and b1 and c1 are in ``others``."""

    restarts_brokers = False
    topology = SimpleNamespace(node_names=("a1", "b1", "c1"))

    def __init__(self, others: str = "up") -> None:
        self.others = others
        self.started: list[str] = []

    def process(self, node: str) -> str:
        return "gone" if node == "a1" and node not in self.started else "running"

    def state(self, node: str) -> str:
        return "down" if node == "a1" else self.others

    def start(self, node: str) -> None:
        self.started.append(node)

    def stored_bytes(self, _: str) -> int:
        return 0


def context_of(cluster: Any, *, taken: bool = False) -> Any:
    at_work: Any = SimpleNamespace(took=lambda *_, **__: [1] if taken else [])
    return SimpleNamespace(cluster=cluster, step=0, at_work=at_work)


@pytest.mark.parametrize(("taken", "started"), [(False, ["a1"]), (True, [])])
def test_a_node_that_the_kernel_ended_under_stress_is_started(taken: bool, started: list[str]) -> None:
    """One that another step has taken is started by that step."""
    cluster = Cluster()
    step = StressInjection(context_of(cluster, taken=taken), ("a1", "b1"), Stressors(1, 0, 0), 9)
    stressed: Any = SimpleNamespace(close=lambda: None)
    step._stressed = dict.fromkeys(("a1", "b1"), stressed)  # noqa: SLF001 - as injecting leaves it
    step.heal()
    assert cluster.started == started


def test_a_disk_is_not_replaced_where_no_other_node_can_forget_it() -> None:
    """The node is started all the same."""
    cluster = Cluster(others="paused")
    step = LoseDiskInjection(context_of(cluster), ("a1",), cluster.start, cluster.start, "gone", replace=True)
    step._lives = {"a1": "process 7"}  # noqa: SLF001 - as injecting leaves it
    with pytest.raises(ClusterError, match="no other node serves, so that none could forget a1"):
        step.heal()
    assert cluster.started == ["a1"]


class Server:
    """A Toxiproxy that keeps the updates of toxics."""

    def __init__(self) -> None:
        self.updates: list[int] = []

    def call(self, calls: list[Call]) -> None:
        bodies: list[Any] = [call.body for call in calls if "/toxics/" in call.path]
        self.updates += [body["attributes"]["latency"] for body in bodies]

    def creation(self, name: str, port: int, target: str, behind: int, **_: Any) -> Call:
        return Call.create(name, listen=f"{target}:{port}", upstream=f"{target}:{behind}")


def test_a_cut_link_is_not_touched_by_a_latency() -> None:
    """Each update lets through what a toxic holds back."""
    server: Any = Server()
    brokers: Any = SimpleNamespace(port_behind=lambda _: 5672)
    link = Link("a1", "b1")
    links = ToxiproxyLinks(server, {link: 20001}, brokers)
    links.cut([link])
    assert server.updates == [3_600_000]
    links.delay([link], latency_ms=50, jitter_ms=0)
    assert server.updates == [3_600_000]
    links.restore([link])
    assert server.updates == [3_600_000, 50]
    links.undelay([link])
    assert server.updates == [3_600_000, 50, 0]
