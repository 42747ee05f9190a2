"""What is told of processes and asked of brokers before they count as given back, by real ones of one machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached.changing import change_left
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
    before = str(next(row for row in cluster.api("b1").nodes() if row["name"] == node)[limit.shown])
    cluster.run_tool("a1", "rabbitmqctl", limit.command, *limit.impossible)
    text = reported(cluster, "alarm", node, left=True)
    cluster.run_tool("a1", "rabbitmqctl", limit.command, *limit.restored, before)
    assert reported(cluster, "alarm", node, left=False) == ""
    message(text)


def test_maintenance_is_left_until_it_ends(cluster: LocalCluster, message: Messages) -> None:
    node = cluster.broker_name("a1")
    cluster.run_tool("a1", *MAINTENANCE.do)
    text = reported(cluster, "drain", node, left=True)
    cluster.run_tool("a1", *MAINTENANCE.undo)
    assert reported(cluster, "drain", node, left=False) == ""
    message(text)


def test_a_change_that_no_broker_reports_counts_as_left(cluster: LocalCluster, message: Messages) -> None:
    texts = [change_left(act, "nobody@nowhere", [cluster.api("a1")]) for act in ("alarm", "drain")]
    texts += [change_left("alarm", "nobody@nowhere", apis) for apis in ([], [ManagementApi("http://127.0.0.1:11")])]
    assert all(texts)
    message("\n".join(texts))


def reported(cluster: LocalCluster, act: str, node: str, *, left: bool) -> str:
    """Other nodes tell it by their statistics, every five seconds."""
    return wait_until(
        lambda: change_left(act, node, [cluster.api("b1")]),
        timeout_s=30,
        what=f"{act} to be reported",
        until=lambda text: bool(text) is left,
    )


def test_a_node_of_which_there_is_none_has_none_of_their_processes(cluster: LocalCluster, tmp_path: Path) -> None:
    other = RemoteBroker(OurMachine(str(tmp_path)), BrokerService(unit="x"), node="nobody@nowhere", key="x")
    assert other.process() is None, "those of the cluster tell other names"
    os.kill(cluster.pids()["b1"], signal.SIGKILL)
    wait_until(lambda: cluster.process("b1") == "gone", timeout_s=30, what="it to end")
    assert other.process() is None
