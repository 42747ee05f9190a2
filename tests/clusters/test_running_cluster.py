"""Each driver on real brokers: it forms a cluster, breaks it as asked, and heals it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.node_protocol import NodeState
from rabbitmq_resilience.sut.pool import unfit_reason
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.sut.protocol import Cluster
from rabbitmq_resilience.sut.running import RunningCluster
from rabbitmq_resilience.tools.waiting import wait_until
from tests.statistics_ended import END
from tests.whole import await_fit, await_whole

pytestmark = pytest.mark.core

OF_C1 = [Link("a1", "c1"), Link("c1", "a1"), Link("b1", "c1"), Link("c1", "b1")]
A_TO_B = Link("a1", "b1")


@contextmanager
def watched(cluster: RunningCluster, *, at_least_s: float) -> Iterator[set[tuple[str, NodeState]]]:
    """Collects every (node, state) that is seen until the block, and at least so many seconds, have gone by."""
    seen: set[tuple[str, NodeState]] = set()
    begun = time.monotonic()

    def look() -> float:
        seen.update((node, cluster.state(node)) for node in cluster.topology.node_names)
        return time.monotonic() - begun

    yield seen
    wait_until(look, timeout_s=at_least_s + 5, what="the time to pass", until=lambda gone_s: gone_s >= at_least_s)


def await_state(cluster: RunningCluster, node: str, state: NodeState, *, timeout_s: float) -> None:
    wait_until(
        lambda: cluster.state(node), timeout_s=timeout_s, what=f"{node} to be {state}", until=lambda seen: seen == state
    )


def await_quick(cluster: RunningCluster, link: Link) -> None:
    """Wait for a probe of a link that is not delayed: a busy machine may delay some."""
    wait_until(
        lambda: cluster.links.probe_ms(link, timeout_s=60),
        timeout_s=60,
        what=f"a quick probe of {link}",
        until=lambda took_ms: took_ms is not None and took_ms < 180,
    )


def test_forms_whole_and_through_its_proxies(cluster: RunningCluster) -> None:
    contract: Cluster = cluster

    assert {contract.state(node) for node in contract.topology.node_names} == {"up"}
    assert cluster.links.proxied == cluster.topology.links
    assert all(cluster.links.probe_ms(link, timeout_s=60) is not None for link in cluster.topology.links)
    assert cluster.api("b1").version() == cluster.broker_version
    await_fit(cluster)


@pytest.mark.brokers
def test_a_node_whose_statistics_have_ended_makes_its_cluster_unfit(cluster: RunningCluster) -> None:
    assert cluster.run_tool("b1", "rabbitmqctl", "eval", END).strip() == "true"
    assert unfit_reason(cluster).startswith("b1 reports no statistics")
    await_whole(cluster)
    await_fit(cluster)


def test_a_whole_link_holds_nothing_even_when_busy(cluster: RunningCluster) -> None:
    begun = time.monotonic()
    seen: set[int | None] = set()

    def look() -> float:
        cluster.api("a1").nodes()
        seen.update(cluster.links.held_bytes(link) for link in cluster.topology.links)
        return time.monotonic() - begun

    wait_until(look, timeout_s=60, poll_s=0.01, what="2 s to pass", until=lambda gone_s: gone_s > 2)
    assert seen == {0}


@pytest.mark.brokers
def test_a_short_cut_holds_bytes_and_goes_unnoticed(cluster: RunningCluster) -> None:
    """A node that has sent something since the last tick sends nothing at the next: after half of net_ticktime all have
    (kernel(6))."""
    with watched(cluster, at_least_s=2) as seen:
        cluster.links.cut(OF_C1)
        held = wait_until(
            lambda: [cluster.links.held_bytes(link) for link in OF_C1],
            timeout_s=0.6 * cluster.topology.net_ticktime_s,
            what="bytes on every link",
            until=all,
        )
    with ThreadPoolExecutor() as pool:
        unanswered = list(pool.map(lambda link: cluster.links.probe_ms(link, timeout_s=0.3), OF_C1))
    before = {node: cluster.traffic(node).keys() for node in cluster.topology.node_names}
    with watched(cluster, at_least_s=4) as seen_after:
        cluster.links.restore(OF_C1)

    assert all(count is not None and count > 0 for count in held), held
    assert unanswered == [None] * 4
    assert {state for _, state in seen | seen_after} == {"up"}
    assert {node: cluster.traffic(node).keys() for node in cluster.topology.node_names} == before
    await_fit(cluster)


@pytest.mark.usefixtures("pausing")
def test_a_long_cut_pauses_the_minority_until_restored(cluster: RunningCluster) -> None:
    others: set[NodeState] = set()

    def c1() -> NodeState:
        others.update(cluster.state(node) for node in ("a1", "b1"))
        return cluster.state("c1")

    cluster.links.cut(OF_C1)
    wait_until(c1, timeout_s=60, what="c1 to pause", until=lambda state: state == "paused")
    wait_until(
        lambda: {cluster.api(node).running_nodes() for node in ("a1", "b1")},
        timeout_s=60,
        what="a1 and b1 to serve without c1",
        until=lambda views: views == {frozenset({"a1@localhost", "b1@localhost"})},
    )
    cluster.links.restore(OF_C1)
    await_whole(cluster)

    assert others == {"up"}
    await_fit(cluster)


def test_a_delay_is_seen_by_the_probe_and_survives_a_cut(cluster: RunningCluster) -> None:
    cluster.links.delay([A_TO_B], latency_ms=200, jitter_ms=20)
    delayed_ms = cluster.links.probe_ms(A_TO_B, timeout_s=60)
    await_quick(cluster, Link("a1", "c1"))
    cluster.links.cut([A_TO_B])
    while_cut_ms = cluster.links.probe_ms(A_TO_B, timeout_s=0.5)
    cluster.links.restore([A_TO_B])
    still_delayed_ms = cluster.links.probe_ms(A_TO_B, timeout_s=60)
    reason = unfit_reason(cluster)
    cluster.links.undelay([A_TO_B])
    await_quick(cluster, A_TO_B)

    assert delayed_ms is not None
    assert delayed_ms >= 180
    assert while_cut_ms is None
    assert still_delayed_ms is not None
    assert still_delayed_ms >= 180
    assert "cut or delayed" in reason
    assert cluster.links.clean


@pytest.mark.brokers
@pytest.mark.usefixtures("pausing")
def test_a_delay_outlives_a_cut_that_parts_the_brokers(cluster: RunningCluster) -> None:
    cluster.links.delay(OF_C1, latency_ms=100, jitter_ms=0)
    cluster.links.cut(OF_C1)
    await_state(cluster, "c1", "paused", timeout_s=60)
    cluster.links.restore(OF_C1)
    probed_ms = cluster.links.probe_ms(Link("a1", "c1"), timeout_s=10)
    cluster.links.undelay(OF_C1)
    await_whole(cluster)

    assert probed_ms is not None
    assert probed_ms >= 100


def test_a_killed_node_comes_back(cluster: RunningCluster) -> None:
    cluster.kill("b1")
    state, process = cluster.state("b1"), cluster.process("b1")
    with pytest.raises(ClusterError, match=r"b1 .*SIGKILL"):
        cluster.kill("b1")
    cluster.start("b1")
    with pytest.raises(ClusterError, match="b1 cannot"):
        cluster.start("b1")
    await_whole(cluster)

    assert (state, process) == ("down", "gone")


def test_a_stopped_node_ends_in_order(cluster: RunningCluster) -> None:
    cluster.stop("c1")
    state = cluster.state("c1")
    log = cluster.logs()["c1"].read_text()
    cluster.start("c1")
    await_whole(cluster)

    assert state == "down"
    words = ("SIGTERM received", "Successfully stopped RabbitMQ", "exited with reason: stopped", "is stopping")
    assert any(word in log for word in words), log[-2000:]


def test_a_paused_node_is_resumed(cluster: RunningCluster) -> None:
    cluster.pause("a1")
    paused = cluster.state("a1")
    cluster.resume("a1")

    assert paused == "suspended"
    assert cluster.process("a1") == "running"
    await_whole(cluster)


@pytest.mark.brokers
def test_restoring_after_a_node_was_killed_behind_the_cut_does_not_hang(cluster: RunningCluster) -> None:
    """A call of Toxiproxy that waited for the dead connection would raise."""
    cluster.links.cut(OF_C1)
    cluster.kill("c1")
    cluster.start("c1")
    cluster.links.restore(OF_C1)
    await_whole(cluster)


def test_probes_leave_no_trace_in_the_logs(cluster: RunningCluster) -> None:
    for link in cluster.topology.links:
        cluster.links.probe_ms(link, timeout_s=60)

    logs = cluster.logs()
    assert not [node for node in cluster.topology.node_names if "probe" in logs[node].read_text()]


@pytest.mark.parametrize(
    "link",
    [Link("a1", "z9"), Link("a1", "a1"), Link("publisher:0", "z9"), Link("publisher:0", "consumer:0")],
    ids=str,
)
def test_an_unknown_link_is_refused_before_anything_starts(link: Link) -> None:
    topology = Topology(name="t", zones={"a": 3})

    with pytest.raises(ClusterError, match=f"no link {link}"):
        LocalCluster.form(topology, proxied=[link])
