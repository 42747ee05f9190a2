"""It can say no: real runs in which a promise is truly broken, or nothing can be told."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.kill_client import KillClient
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.runner.judging import Result, judge_run
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.workload.queue_settings import Mirroring
from rabbitmq_resilience.workload.services import ProcessingStep
from rabbitmq_resilience.workload.worker import Worker
from rabbitmq_resilience.workload.workload_model import Workload
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.core

THREE_NODES = topology_catalogue.load("three_nodes_three_zones")
#: Enough to lose what a consumer held.
ONE_NODE = topology_catalogue.load("one_node")


def scenario(
    title: str,
    workload: Workload,
    *schedule: Any,
    topology: Topology = THREE_NODES,
    recovery_s: float = 60,
    **invariants: dict[str, Any],
) -> Scenario:
    return Scenario(
        title=title,
        seed=1,
        topology=topology,
        workload=workload,
        phases=Phases(steady_s=2, recovery_s=recovery_s, settled_s=1, drain_s=400),
        schedule=schedule,
        invariants=Invariants.model_validate({"no_loss": {}, **invariants}),
    )


def finding(result: Result, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {**result.document["invariants"], **result.document["assumptions"]}[name]
    return found


def assert_rechecks_the_same(result: Result) -> None:
    again = judge_run(result.run)
    assert again.document == result.document
    assert json.loads(result.run.verdict_file.read_text()) == result.document


@pytest.mark.plays
def test_unsynchronised_mirror_is_promoted(own_testbed: RunContext) -> None:
    """The mirror's node is away while the queue is long, so the mirror that comes back lacks what is in it; then
    the leader's node dies. The publishers took each write for a promise. The consumer is so slow until then that what
    was there when the mirror went is there still, however soon another one comes.
    The mirror never gets in step again, so recovery ends with its time."""
    workload = Workload(
        queue_type="mirrored",
        leaders_on=("a1",),
        mirroring=Mirroring(
            ha_mode="exactly",
            ha_params=2,
            ha_sync_mode="manual",
            ha_promote_on_failure="always",
            ha_promote_on_shutdown="always",
        ),
        rate_per_s=60,
        variable_processing=(ProcessingStep(processing_ms=300, for_s=18),),
        confirms="ignored",
        prefetch=1,
        ack_every=1,
    )
    result = run_validated(
        scenario(
            "An unsynchronised mirror is promoted",
            workload,
            Kill(at_s=3, for_s=3, node="follower:q1"),
            Kill(at_s=16, for_s=3, node="leader:q1"),
            recovery_s=10,
        ),
        own_testbed,
    )
    assert finding(result, "faults_proven")["verdict"] == Verdict.VALID
    assert result.verdict is Verdict.INVALID
    assert finding(result, "no_loss")["verdict"] == Verdict.INVALID
    assert finding(result, "no_loss")["numbers"]["lost"] > 0
    assert finding(result, "no_loss")["numbers"]["unexpected"] == 0
    assert_rechecks_the_same(result)


def test_consumer_with_automatic_acks_is_killed(own_testbed: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker forgets each message that it has sent; what the consumer had not processed is gone. It stands still
    before it dies, as it could have put everything on record at that very moment."""
    killed = Worker.kill

    def stands_still_and_dies(worker: Worker) -> None:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(1)
        killed(worker)

    monkeypatch.setattr(Worker, "kill", stands_still_and_dies)
    workload = Workload(queue_type="quorum", rate_per_s=2000, in_flight=500, acks="automatic")
    kill = KillClient(at_s=2, for_s=2, client="consumer:0")
    result = run_validated(
        scenario("A consumer with automatic acks is killed", workload, kill, topology=ONE_NODE), own_testbed
    )
    assert finding(result, "faults_proven")["verdict"] == Verdict.VALID
    assert result.verdict is Verdict.INVALID
    assert finding(result, "no_loss")["verdict"] == Verdict.INVALID
    assert finding(result, "no_loss")["numbers"]["lost"] > 0
    assert finding(result, "no_loss")["examples"]
    assert_rechecks_the_same(result)


def test_consumer_with_manual_acks_is_killed(own_testbed: RunContext) -> None:
    """The same in the safe way loses nothing: it is the acks that the other run was INVALID for."""
    workload = Workload(queue_type="quorum", rate_per_s=2000, in_flight=500)
    kill = KillClient(at_s=2, for_s=2, client="consumer:0")
    result = run_validated(
        scenario("A consumer with manual acks is killed", workload, kill, topology=ONE_NODE), own_testbed
    )
    assert result.verdict is Verdict.VALID, result.story()


@pytest.mark.plays
def test_cut_on_a_link_that_carries_no_proxy(own_testbed: RunContext) -> None:
    """Nothing was cut, so whatever the history looks like, it tells nothing."""
    workload = Workload(rate_per_s=300)
    cut = Partition(at_s=1, for_s=3, between=("zone:c", "rest"))
    result = run_validated(
        scenario("A cut whose links carry no proxy", workload, cut, order={}), own_testbed, proxied=frozenset()
    )
    assert result.verdict is Verdict.UNKNOWN
    assert "no proxy" in finding(result, "faults_proven")["summary"]
    assert finding(result, "no_loss")["verdict"] == Verdict.VALID
    assert_rechecks_the_same(result)
