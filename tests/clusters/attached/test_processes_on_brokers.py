"""What is told of processes and asked of brokers before they are given back, by real ones of one machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached.commanded import OurMachine
from rabbitmq_resilience.extensions.attached.disk_filling import IS_BROKEN
from rabbitmq_resilience.extensions.attached.foreign_broker import RUNS, RemoteBroker
from rabbitmq_resilience.extensions.attached.offers import BrokerService
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from tests.clusters.attached.processes import TOPOLOGY

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


def test_a_node_of_which_there_is_none_has_none_of_their_processes(cluster: LocalCluster, tmp_path: Path) -> None:
    other = RemoteBroker(OurMachine(str(tmp_path)), BrokerService(unit="x"), node="nobody@nowhere", key="x")
    assert other.process() is None, "those of the cluster tell other names"
    os.kill(cluster.pids()["b1"], signal.SIGKILL)
    wait_until(lambda: cluster.process("b1") == "gone", timeout_s=30, what="it to end")
    assert other.process() is None
