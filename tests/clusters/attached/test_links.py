"""What is done to links between brokers, as it is counted and asked of machines."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.fault_budget import BlastRadius
from rabbitmq_resilience.extensions.attached.journal import Journal
from rabbitmq_resilience.extensions.attached.machine import ForcedError, MachineError
from rabbitmq_resilience.extensions.attached.machine_links import AttachedLinks, BrokerLinks, LinkMachines
from rabbitmq_resilience.extensions.attached.packet_rules import DROP, PacketRule, Treatment
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from tests.messages import Messages

NODES = {f"{zone}1": f"rabbit@h{i}" for i, zone in enumerate("abcde", 1)}
ADDRESSES = {node: f"10.0.0.{i}" for i, node in enumerate(NODES, 1)}
LINKS = [Link(a, b) for a in NODES for b in NODES if a != b]


class Machine:
    """Takes rules and delays while it is reached. ``forces``: what it says where it had to."""

    tool = "nft"

    def __init__(self, name: str) -> None:
        self.name, self.reached, self.forces = name, True, ""
        self.rules, self.delays = list[PacketRule](), dict[str, Treatment]()

    def put(self, what: Any, *, ports: Collection[int] | None = None, for_s: float) -> None:
        assert for_s >= 0
        self.for_s = for_s
        if not self.reached:
            raise MachineError(f"{self.name} is not reached")
        if ports is None:
            self.rules = list(what)
        else:
            self.delays = dict(what)
        if self.forces:
            raise ForcedError(self.forces)

    def lost(self) -> Mapping[str, int]:
        return {}


class OfClients:
    """None of them is proxied."""

    proxied: frozenset[Link] = frozenset()
    clean = True

    def cut(self, links: Collection[Link]) -> None:
        assert not links

    restore = undelay = cut

    def delay(self, links: Collection[Link], **_: int) -> None:
        assert not links


class Cluster:
    def __init__(self, folder: Path, allow: str) -> None:
        (folder / "secret").write_text("x")
        rows = "".join(
            f'  - {{name: {name}, zone: {node[0]}, amqp: "amqp://h{node}", management: "http://h{node}"}}\n'
            for node, name in NODES.items()
        )
        file = folder / "cluster.yaml"
        file.write_text(
            "version: 1\ncluster: orders\nuser: {file: secret}\npassword: {file: secret}\n"
            f"partition_handling: pause_minority\nnodes:\n{rows}offers: {{ssh: {{}}}}\nallow: {allow}\n"
        )
        self.machines = {node: Machine(name) for node, name in NODES.items()}
        self.hands = BlastRadius(load(file).stated, Journal(folder / "journal.jsonl"))
        addresses = {link: [ADDRESSES[link.target]] for link in LINKS}
        ends = LinkMachines(dict.fromkeys(NODES, None), addresses, dict.fromkeys(NODES, 25672))  # type: ignore[arg-type]
        of_brokers = BrokerLinks(ends, self.machines, delays=self.machines)  # type: ignore[arg-type]
        self.links = AttachedLinks(OfClients(), of_brokers, self.hands, NODES, frozenset(LINKS), 60.0)  # type: ignore[arg-type]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, "{cut: 1, delay: 1}")


def of(node: str) -> list[Link]:
    return [link for link in LINKS if node in link]


def test_a_cut_whose_healing_failed_counts_until_it_is_healed(cluster: Cluster, message: Messages) -> None:
    cluster.links.cut(of("a1"))
    cluster.machines["a1"].reached = False
    with message.of(MachineError):
        cluster.links.restore(of("a1"))
    beside = [link for link in of("b1") if "a1" not in link]
    with message.of(ClusterError) as refused:
        cluster.links.cut(beside)
    assert "cut: 1" in str(refused.value)
    assert not cluster.links.clean
    cluster.machines["a1"].reached = True
    cluster.links.restore(of("a1"))
    assert cluster.links.clean
    assert cluster.hands.held(["cut"]) == []
    cluster.links.cut(beside)


def test_a_machine_without_us_heals_when_the_first_act_there_is_over(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "{cut: 1, lose_packets: 2}")
    some, whole = Treatment("drop", 10.0), DROP
    cluster.links.lasting(600).treat([Link("c1", "a1")], how=some)
    cluster.links.lasting(10).treat([Link("b1", "a1")], how=whole)
    assert 0 < cluster.machines["a1"].for_s <= 10
    cluster.links.untreat([Link("b1", "a1")], how=whole)
    assert 590 < cluster.machines["a1"].for_s <= 600


def test_what_could_not_be_healed_is_not_done_again_next_to_something_else(cluster: Cluster) -> None:
    to_a1, other = Link("b1", "a1"), Link("c1", "a1")
    cluster.links.cut([to_a1])
    cluster.machines["a1"].reached = False
    with pytest.raises(MachineError):
        cluster.links.restore([to_a1])
    cluster.machines["a1"].reached = True
    cluster.links.cut([other])
    assert cluster.machines["a1"].rules == [PacketRule(ADDRESSES["c1"], DROP)]


def test_where_all_packets_are_lost_it_is_a_cut(tmp_path: Path, message: Messages) -> None:
    cluster = Cluster(tmp_path, "{lose_packets: 5}")
    cluster.links.treat(of("a1"), how=Treatment("drop", 99.0))
    with message.of(ClusterError):
        cluster.links.treat(of("b1"), how=Treatment("drop", 100.0))
    with message.of(ClusterError):
        cluster.links.treat(of("b1"), how=Treatment("drop", 99.999))


def test_what_healed_by_force_is_healed(cluster: Cluster, message: Messages) -> None:
    cluster.links.cut(of("a1"))
    cluster.machines["a1"].forces = "by force"
    with message.of(ForcedError):
        cluster.links.restore(of("a1"))
    assert cluster.links.clean
    assert cluster.hands.held(["cut"]) == []


def test_a_delay_whose_healing_failed_counts_and_is_healed_when_that_is_asked_again(cluster: Cluster) -> None:
    links = [Link("a1", "b1"), Link("a1", "c1")]
    cluster.links.delay(links, latency_ms=100, jitter_ms=0)
    cluster.machines["a1"].reached = False
    with pytest.raises(MachineError):
        cluster.links.undelay(links)
    assert not cluster.links.clean
    assert cluster.hands.held(["delay"]) == ["rabbit@h1"]
    cluster.machines["a1"].reached = True
    cluster.links.undelay(links)
    assert cluster.machines["a1"].delays == {}
    assert cluster.links.clean
    assert cluster.hands.held(["delay"]) == []


def test_the_same_of_a_delay_by_rules_where_packets_arrive(cluster: Cluster) -> None:
    assert isinstance(cluster.links.of_brokers, BrokerLinks)
    cluster.links.of_brokers.delays = {}
    link, late = Link("a1", "b1"), Treatment.late(latency_ms=100, jitter_ms=0)
    cluster.links.delay([link], latency_ms=100, jitter_ms=0)
    assert cluster.machines["b1"].rules == [PacketRule(ADDRESSES["a1"], late)]
    cluster.machines["b1"].reached = False
    with pytest.raises(MachineError):
        cluster.links.undelay([link])
    cluster.machines["b1"].reached = True
    cluster.links.undelay([link])
    assert cluster.machines["b1"].rules == []
    assert cluster.links.clean
    assert cluster.hands.held(["delay"]) == []


def test_a_cut_is_left_until_it_is_healed(cluster: Cluster) -> None:
    """By which the next scenario is refused."""
    cluster.links.cut(of("a1"))
    assert "cut at rabbit@h1" in {text.partition(" since ")[0] for text in cluster.hands.journal.left()}
    cluster.links.restore(of("a1"))
    assert cluster.hands.journal.left() == []
