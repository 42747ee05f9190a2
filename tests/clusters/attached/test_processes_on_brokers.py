"""What is told of processes and asked of brokers before they count as given back, by real ones of one machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached.changing import IS_DRAINED, limits_left
from rabbitmq_resilience.extensions.attached.commanded import OurMachine
from rabbitmq_resilience.extensions.attached.disk_filling import IS_BROKEN
from rabbitmq_resilience.extensions.attached.foreign_broker import RUNS, RemoteBroker
from rabbitmq_resilience.extensions.attached.offers import BrokerService
from rabbitmq_resilience.model.broker_changes import MAINTENANCE
from rabbitmq_resilience.nemesis.alarm import LIMITS, Resource
from rabbitmq_resilience.sut.broker.management import ManagementApi
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from tests.clusters.attached.processes import TOPOLOGY
from tests.messages import Messages

pytestmark = pytest.mark.attached


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster.form(TOPOLOGY) as formed:
        yield formed


def test_a_running_broker_says_so_and_one_with_its_metadata_is_not_broken(cluster: LocalCluster) -> None:
    assert cluster.run_tool("a1", "rabbitmqctl", "eval", RUNS).strip() == "true"
    pid = f"({IS_BROKEN}) orelse list_to_integer(os:getpid())."
    assert cluster.run_tool("a1", "rabbitmqctl", "eval", pid).strip() == str(cluster.pids()["a1"])
    cluster.run_tool("a1", "rabbitmqctl", "stop_app")
    assert cluster.run_tool("a1", "rabbitmqctl", "eval", RUNS).strip() == "false"
    cluster.run_tool("a1", "rabbitmqctl", "start_app")


@pytest.mark.parametrize("resource", ["memory", "disk"])
def test_a_limit_is_left_until_it_is_set_back(cluster: LocalCluster, resource: Resource, message: Messages) -> None:
    limit, node = LIMITS[resource], cluster.broker_name("a1")
    await_left(cluster, node, "")
    before = next(row for row in cluster.api("b1").nodes() if row["name"] == node)[limit.shown]
    cluster.run_tool("a1", "rabbitmqctl", limit.command, *limit.impossible)
    message(await_left(cluster, node, limit.command))
    cluster.run_tool("a1", "rabbitmqctl", limit.command, *limit.restored, str(before))
    await_left(cluster, node, "")


def test_a_limit_that_no_broker_reports_counts_as_left(cluster: LocalCluster, message: Messages) -> None:
    texts = [limits_left("nobody@nowhere", [cluster.api("a1")])]
    texts += [limits_left("nobody@nowhere", apis) for apis in ([], [ManagementApi("http://127.0.0.1:11")])]
    assert all(texts)
    message("\n".join(texts))


def test_a_broker_says_whether_it_is_in_maintenance_mode(cluster: LocalCluster) -> None:
    answers = []
    for done in (None, MAINTENANCE.do, MAINTENANCE.undo):
        if done is not None:
            cluster.run_tool("a1", *done)
        answers.append(cluster.run_tool("a1", "rabbitmqctl", "eval", IS_DRAINED).strip())
    assert answers == ["false", "true", "false"]


def await_left(cluster: LocalCluster, node: str, named: str) -> str:
    """Wait until another node reports it with a text that has this in it, or no text if this is empty.

    Nodes report each other by their statistics, every five seconds."""
    return wait_until(
        lambda: limits_left(node, [cluster.api("b1")]),
        timeout_s=30,
        what="its limits to be reported",
        until=lambda text: named in text and bool(text) is bool(named),
    )


def test_a_node_of_which_there_is_none_has_none_of_their_processes(cluster: LocalCluster, tmp_path: Path) -> None:
    other = RemoteBroker(OurMachine(str(tmp_path)), BrokerService(unit="x"), node="nobody@nowhere", key="x")
    assert other.process() is None, "those of the cluster tell other names"
    os.kill(cluster.pids()["b1"], signal.SIGKILL)
    wait_until(lambda: cluster.process("b1") == "gone", timeout_s=30, what="it to end")
    assert other.process() is None
