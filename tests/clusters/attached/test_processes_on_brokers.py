"""What is told of processes and asked of brokers before they count as given back, by real ones of one machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached.changing import IS_DRAINED, LIMITS_NOW, limits_left
from rabbitmq_resilience.extensions.attached.commanded import OurMachine
from rabbitmq_resilience.extensions.attached.disk_filling import IS_BROKEN
from rabbitmq_resilience.extensions.attached.foreign_broker import RUNS, RemoteBroker
from rabbitmq_resilience.extensions.attached.offers import BrokerService
from rabbitmq_resilience.model.broker_changes import MAINTENANCE
from rabbitmq_resilience.nemesis.alarm import LIMITS, Resource
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
    limit, place = LIMITS[resource], list(LIMITS).index(resource)
    before = asked(cluster, LIMITS_NOW)
    assert limits_left(before) == ""
    cluster.run_tool("a1", "rabbitmqctl", limit.command, *limit.impossible)
    message(limits_left(asked(cluster, LIMITS_NOW)))
    cluster.run_tool("a1", "rabbitmqctl", limit.command, *limit.restored, before.strip("{}").split(",")[place])
    assert asked(cluster, LIMITS_NOW) == before


def test_limits_that_a_broker_does_not_report_count_as_left(message: Messages) -> None:
    message(limits_left("{undefined,50000000}"))


def asked(cluster: LocalCluster, expression: str) -> str:
    return cluster.run_tool("a1", "rabbitmqctl", "eval", expression).strip()


def test_a_broker_says_whether_it_is_in_maintenance_mode(cluster: LocalCluster) -> None:
    answers = []
    for done in (None, MAINTENANCE.do, MAINTENANCE.undo):
        if done is not None:
            cluster.run_tool("a1", *done)
        answers.append(asked(cluster, IS_DRAINED))
    assert answers == ["false", "true", "false"]


def test_a_node_of_which_there_is_none_has_none_of_their_processes(cluster: LocalCluster, tmp_path: Path) -> None:
    other = RemoteBroker(OurMachine(str(tmp_path)), BrokerService(unit="x"), node="nobody@nowhere", key="x")
    assert other.process() is None, "those of the cluster tell other names"
    os.kill(cluster.pids()["b1"], signal.SIGKILL)
    wait_until(lambda: cluster.process("b1") == "gone", timeout_s=30, what="it to end")
    assert other.process() is None
