"""A queue with a single active consumer over the death of each consumer, and one without, which must be noticed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.kill_client import KillClient
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.workload.workload_model import Workload
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.plays


@pytest.fixture(scope="module")
def pool() -> Iterator[ClusterPool]:
    with ClusterPool() as clusters:
        yield clusters


def played(pool: ClusterPool, tmp_path: Path, workload: Workload, *kills: KillClient, **also: Any) -> Result:
    demanded = {"no_loss": {}, "single_active_consumer": {}, **also}
    scenario = Scenario(
        title="One consumer at a time",
        topology=topology_catalogue.load("three_nodes_three_zones"),
        workload=workload,
        phases=Phases(steady_s=2, recovery_s=60, settled_s=1),
        schedule=kills,
        invariants=Invariants.model_validate(demanded),
    )
    return run_validated(scenario, RunContext(pool, tmp_path, io.StringIO()))


def test_another_consumer_takes_over_from_the_active_one(pool: ClusterPool, tmp_path: Path) -> None:
    """Whichever of the two was the active one at first, it dies, and the other one with it in its turn."""
    workload = Workload(consumers=2, rate_per_s=300, single_active_consumer=True)
    kills = [KillClient(at_s=1, for_s=1, client="consumer:0"), KillClient(at_s=4, for_s=1, client="consumer:1")]
    result = played(pool, tmp_path, workload, *kills, order={"shared_queues": "judged"})
    assert result.verdict is Verdict.VALID, result.story()
    numbers = result.document["invariants"]["single_active_consumer"]["numbers"]
    assert numbers["handovers"] >= 1 and numbers["received_beside"] == 0, numbers


def test_consumers_that_take_turns_are_noticed(pool: ClusterPool, tmp_path: Path) -> None:
    result = played(pool, tmp_path, Workload(queue_type="classic", consumers=2, rate_per_s=300))
    verdicts = {name: told["verdict"] for name, told in result.document["invariants"].items()}
    assert verdicts == {"no_loss": Verdict.VALID, "single_active_consumer": Verdict.INVALID}, result.story()
