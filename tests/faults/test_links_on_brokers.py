"""The faults of links on real brokers: how short they get, what proves them, and that nothing else does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.disconnect import Disconnect
from rabbitmq_resilience.nemesis.fault import FaultContext
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.flapping import Flapping
from rabbitmq_resilience.nemesis.latency import CLIENT_WAITED_FOR_MS, PEER_WAITED_FOR_MS, Latency
from rabbitmq_resilience.nemesis.nemesis import Nemesis
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.nemesis.pause import Pause
from rabbitmq_resilience.nemesis.targets import links_between
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from tests.whole import await_fit, await_whole

pytestmark = pytest.mark.core

THREE = topology_catalogue.load("three_nodes_three_zones")
EACH = THREE.node_names
OF_CLIENT = frozenset(Link("publisher:0", node) for node in EACH)
RESTS_S = 4.0
#: Brokers mostly get a processor within this time, though other programs may keep it from them for longer.
SHORTEST_TOLD_S = 0.4
PROVEN = ["injecting", "injected", "proven", "healing", "healed", "heal_proven"]
PROVEN_LATE = ["injecting", "injected", "healing", "healed", "proven", "heal_proven"]


def more(*values: Any) -> list[Any]:
    """Return values of a parameter that only ``make test-all`` tries."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.brokers) for value in values
    ]


@pytest.fixture(scope="module")
def formed() -> Iterator[LocalCluster]:
    with LocalCluster.form(THREE, proxied=THREE.links | OF_CLIENT) as cluster:
        rest()
        yield cluster


def rest() -> None:
    """A node that loses its peers right after it came back does not pause again, and the cluster stays parted for good
    (rabbitmq/rabbitmq-server#2175). That is for a suite to show."""
    ends_s = time.monotonic() + RESTS_S
    wait_until(lambda: time.monotonic() > ends_s, timeout_s=RESTS_S + 5, what="the cluster to have rested")


@pytest.fixture
def cluster(formed: LocalCluster) -> Iterator[LocalCluster]:
    """Whole, and for a while."""
    await_whole(formed)
    await_fit(formed)
    before = connections(formed)
    yield formed
    await_whole(formed)
    if connections(formed) != before:
        rest()


class Played(list[dict[str, Any]]):
    """The events of one step, in order."""

    def __str__(self) -> str:
        return "; ".join(f"{event['state']}: {event['detail']}" for event in self)

    @property
    def states(self) -> list[str]:
        return [event["state"] for event in self]

    @property
    def detail(self) -> str:
        return str(next(event["detail"] for event in self if event["state"] in ("proven", "unproven")))

    @property
    def could_tell(self) -> bool:
        """Return whether brokers answered past the proxies: one that got no processor for as long as a cut lasted looks
        like one that was cut off, however long that was."""
        return not self.detail.endswith("did not answer past the proxies either")

    @property
    def lasted_s(self) -> float:
        """The time for which the fault was surely on."""
        moments = {event["state"]: event["t_us"] for event in self}
        return float(moments["healing"] - moments["injected"]) / 1e6


def play(cluster: LocalCluster, step: AnyFault, *others: AnyFault) -> Played:
    """The events of ``step``. Without load: nobody looks for a leader, and no client is connected."""
    unused: Any = SimpleNamespace(leader_of=None, client_events=lambda _: [])
    played = Played()

    def record(kind: str, **fields: Any) -> None:
        if fields["step"] == 0:
            played.append({"t_us": now_us(), "kind": kind, **fields})

    Nemesis((step, *others), FaultContext(cluster, unused, unused), record, seed=1, chaos_s=0).play(lambda: None)
    assert cluster.links.clean
    return played


def connections(cluster: LocalCluster) -> dict[Link, str | None]:
    return {link: cluster.links.connection(link) for link in sorted(THREE.links)}


@pytest.mark.parametrize("for_s", [*more(0.004, 0.05, 0.4), 1.5])
def test_a_blip_on_all_links_goes_unnoticed_and_is_proven(cluster: LocalCluster, for_s: float) -> None:
    before = connections(cluster)
    played = play(cluster, Partition(at_s=0, for_s=for_s, between=EACH))

    if not played.could_tell:
        pytest.skip(f"brokers got no processor for {for_s} s: {played}")
    assert played.states == PROVEN_LATE, str(played)
    assert "6 links" in played.detail
    assert played.lasted_s >= for_s
    assert connections(cluster) == before
    await_fit(cluster)


@pytest.mark.parametrize("for_s", [*more(0.05), 1.5])
def test_a_blip_that_did_not_happen_is_not_proven(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, for_s: float
) -> None:
    monkeypatch.setattr(cluster.links, "cut", lambda _links: None)
    played = [play(cluster, Partition(at_s=0, for_s=for_s, between=EACH)) for _ in range(5 if for_s < 1 else 1)]

    assert [step.states[4] for step in played] == ["unproven"] * len(played)


@pytest.mark.brokers
@pytest.mark.parametrize("sides", [("a1", "b1"), ("b1", "a1")], ids="_to_".join)
def test_a_blip_one_way(cluster: LocalCluster, sides: tuple[str, ...]) -> None:
    played = play(cluster, Partition(at_s=0, for_s=SHORTEST_TOLD_S, between=sides, one_way=True))

    assert played.states == PROVEN_LATE, str(played)
    assert played[0]["effect"].links_cut == {Link(*sides)}


def test_a_long_cut_one_way_parts_both(cluster: LocalCluster) -> None:
    played = play(cluster, Partition(at_s=0, for_s=14, between=("zone:c", "rest"), one_way=True))
    await_whole(cluster)

    assert sorted(played.states) == sorted(PROVEN), str(played)
    # c1 reports it too if it is asked between noticing and pausing
    assert "a1 b1" in played.detail and "other side" in played.detail
    assert "a1 b1 c1 report" in played.detail or "c1 paused" in played.detail


@pytest.mark.parametrize("for_s", [*more(0.004, 5), 0.3])
def test_disconnected_brokers_have_new_connections_afterwards(cluster: LocalCluster, for_s: float) -> None:
    before = connections(cluster)
    played = play(cluster, Disconnect(at_s=0, for_s=for_s, between=("zone:c", "rest")))
    await_whole(cluster)
    after = connections(cluster)

    assert played.states == (PROVEN if for_s == 5 else PROVEN_LATE), str(played)
    assert played[0]["effect"].sudden
    assert "2 connections" in played.detail
    assert {link for link in before if before[link] != after[link]} >= {link for link in THREE.links if "c1" in link}


@pytest.mark.brokers
def test_a_link_that_flaps(cluster: LocalCluster) -> None:
    """Ten times a second is for ``benchmarks.links`` to measure: a busy machine does not get that far. A cut that is
    late by a quarter of the period is left out, which is half a second here."""
    played = play(cluster, Flapping(at_s=0, for_s=10, between=("zone:c", "rest"), period_s=2))

    assert played.states == PROVEN_LATE, str(played)
    assert played[0]["effect"].intermittent
    assert int(played.detail.partition(" ")[0]) in range(4, 6), played.detail


@pytest.mark.brokers
def test_flaps_that_did_not_happen_are_not_proven(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.links, "cut", lambda _links: None)
    played = play(cluster, Flapping(at_s=0, for_s=2, between=("zone:c", "rest"), period_s=0.4))

    assert played.states[4] == "unproven"


@pytest.mark.parametrize(
    ("sides", "one_way"),
    [(("publisher:0", "all"), False), *more((("publisher:0", "all"), True), (("b1", "publisher:0"), True))],
)
@pytest.mark.parametrize("for_s", [*more(SHORTEST_TOLD_S), 3])
def test_a_client_is_cut_from_brokers(
    cluster: LocalCluster, sides: tuple[str, ...], one_way: bool, for_s: float
) -> None:
    played = play(cluster, Partition(at_s=0, for_s=for_s, between=sides, one_way=one_way))

    assert played.states == (PROVEN if for_s == 3 else PROVEN_LATE), str(played)


@pytest.mark.brokers
def test_a_client_that_is_not_cut_is_not_proven_so(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.links, "cut", lambda _links: None)
    played = play(cluster, Partition(at_s=0, for_s=3, between=("publisher:0", "all")))

    assert played.states[2] == "unproven"
    assert "a probe crossed" in played.detail


@pytest.mark.brokers
def test_a_client_is_refused(cluster: LocalCluster) -> None:
    played = play(cluster, Disconnect(at_s=0, for_s=0.2, between=("publisher:0", "all")))

    assert played.states == PROVEN_LATE, str(played)
    assert "3 links refused" in played.detail or "6 links refused" in played.detail


@pytest.mark.brokers
def test_a_node_that_is_parted_already_is_cut_by_proof_of_probes(cluster: LocalCluster) -> None:
    """As when a zone is cut off again before it serves: what brokers see would be the same without the second cut."""
    cluster.links.cut(links_between((("c1",), ("a1", "b1"))))
    wait_until(lambda: cluster.state("c1") == "paused", timeout_s=60, what="c1 to pause")
    cluster.links.restore(THREE.links)
    played = play(cluster, Partition(at_s=0, for_s=10, between=("zone:c", "rest")))
    await_whole(cluster)

    assert played.states == PROVEN, str(played)
    assert "crossed 4 links" in played.detail


@pytest.mark.brokers
@pytest.mark.parametrize(
    "other",
    [
        Partition(at_s=0, for_s=5, between=("b1", "a1"), one_way=True),
        Latency(at_s=0, for_s=5, links="a1 -> b1", latency_ms=1500),
        Pause(at_s=0, for_s=4, node="b1"),
    ],
    ids=lambda other: other.fault,
)
def test_what_another_step_does_proves_no_cut(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, other: AnyFault
) -> None:
    """The way back is cut, the link is slow, or its broker answers nobody; the cut itself is never made."""
    own, cut = {Link("a1", "b1")}, cluster.links.cut
    monkeypatch.setattr(cluster.links, "cut", lambda links: cut(set(links) - own))
    played = play(cluster, Partition(at_s=1, for_s=3, between=("a1", "b1"), one_way=True), other)

    assert played.states[2] == "unproven", str(played)


@pytest.mark.brokers
@pytest.mark.parametrize(
    ("link", "waited_ms"),
    [(Link("a1", "b1"), PEER_WAITED_FOR_MS), (Link("publisher:0", "a1"), CLIENT_WAITED_FOR_MS)],
    ids=str,
)
def test_brokers_wait_as_long_for_a_first_word_as_steps_rely_on(
    cluster: LocalCluster, link: Link, waited_ms: int
) -> None:
    began_s = time.monotonic()
    probe = cluster.links.probe(link, direct=True)
    assert probe is not None
    with closing(probe), suppress(ConnectionResetError):
        assert probe.receive(timeout_s=60) is None
    assert time.monotonic() - began_s >= waited_ms / 1000
