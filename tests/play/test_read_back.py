"""What is played on real brokers is read back from their logs."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.extensions.incidents.draft import draft
from rabbitmq_resilience.extensions.incidents.from_logs import evidence_of
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.conditions import AfterStep, When
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.nemesis.pause import Pause
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.workload.workload_model import Workload
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.plays


def test_a_cut_a_kill_and_a_freeze_are_distinguished(own_testbed: RunContext) -> None:
    topology = topology_catalogue.load("three_nodes_three_zones")
    played = Scenario(
        title="To be read back",
        seed=1,
        topology=topology,
        workload=Workload(rate_per_s=50),
        phases=Phases(steady_s=2, recovery_s=60, settled_s=1, drain_s=60),
        schedule=(
            Partition(at_s=1, for_s=14, between=("zone:c", "rest")),
            Pause(when=When(after_step=AfterStep(step=0, wait_s=12)), for_s=14, node="a1"),
            Kill(when=When(after_step=AfterStep(step=1, wait_s=12)), for_s=5, node="b1"),
        ),
        invariants=Invariants.model_validate({"no_loss": {}}),
    )
    run = run_validated(played, own_testbed).run
    made = fault_file.parse(draft(evidence_of([run.logs], net_ticktime_s=topology.net_ticktime_s)))
    where = [(step.fault, getattr(step, "between", getattr(step, "node", None))) for step in made.schedule]
    assert where == [("partition", ("c1", "rest")), ("pause", "a1"), ("kill", "b1")]
    assert made.topology.zones == topology.zones
