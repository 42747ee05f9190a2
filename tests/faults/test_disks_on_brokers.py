"""Faults of disks on real brokers: each takes effect, is proven, and ends."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rabbitmq_resilience.history.events import FaultEvent
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.conditions import AfterStep, NodeIs, When
from rabbitmq_resilience.nemesis.damage_file import DamageFile
from rabbitmq_resilience.nemesis.disk_errors import DiskErrors
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.power_cut import PowerCut
from rabbitmq_resilience.nemesis.slow_disk import SlowDisk
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.workload.workload_model import Workload
from tests.drivers import DRIVEN
from tests.needs import skipped_without
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.core

PROVEN = ["injecting", "injected", "proven", "healing", "healed", "heal_proven"]


@pytest.fixture(params=DRIVEN)
def context(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunContext]:
    """Processes and containers, each on clusters of its own."""
    with skipped_without():
        opened = DRIVERS[request.param].open(None)
    with closing(opened), ClusterPool(opened.form) as pool:
        yield RunContext(pool, tmp_path, io.StringIO(), driver=request.param, require=opened.require)


def played(context: RunContext, *schedule: AnyFault) -> Result:
    """Play the steps, and assert that each was proven to begin and to end."""
    scenario = Scenario(
        title="Disks fail",
        seed=7,
        topology=topology_catalogue.load("three_nodes_three_zones"),
        workload=Workload(queues=2, publishers=2, consumers=2, rate_per_s=100),
        phases=Phases(steady_s=2, recovery_s=90, settled_s=1),
        schedule=schedule,
        invariants=Invariants.model_validate({"no_loss": {}, "order": {}, "recovery": {"within_s": 60}}),
    )
    with skipped_without():
        context.require(scenario.needs)
    result = run_validated(scenario, context)
    states, details = defaultdict(list), defaultdict(list)
    for event in result.run.events():
        if isinstance(event, FaultEvent):
            states[event.step].append(event.state)
            details[event.step].append(event.detail)
    assert dict(states) == dict.fromkeys(range(len(schedule)), PROVEN), dict(details)
    return result


def test_all_nodes_lose_power_and_nothing_that_a_quorum_queue_confirmed(context: RunContext) -> None:
    """All brokers had written data and a name that they had not flushed, and are whole without them."""
    result = played(context, PowerCut(at_s=1, for_s=2, node="all", written_back_after_s=2))
    assert result.document["invariants"]["no_loss"]["verdict"] == "VALID", result.document["invariants"]
    for node in ("a1", "b1", "c1"):
        (line,) = (result.run.logs / f"{node}-power.log").read_text(encoding="utf-8").splitlines()
        taken = json.loads(line)
        assert taken["bytes"] > 0
        assert taken["names"] > 0


def test_disks_are_slow_fail_and_are_damaged(context: RunContext) -> None:
    """A majority serves at any time."""
    b1_is_back = When(after_step=AfterStep(step=1), node_is=NodeIs(node="b1", state="up"))
    result = played(
        context,
        SlowDisk(at_s=1, for_s=6, node="a1", flush_ms=200, write_ms=20),
        DiskErrors(at_s=2, for_s=5, node="b1", files="*.wal"),
        DamageFile(when=b1_is_back, for_s=4, node="c1", file="write_ahead_log", how="cut_tail"),
    )
    assert result.document["invariants"]["no_loss"]["verdict"] == "VALID", result.document["invariants"]
