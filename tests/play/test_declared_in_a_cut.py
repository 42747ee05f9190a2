"""Real brokers that are asked for queues, bindings and policies while a minority is cut off."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.events import DeclarationEvent
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.topology import PartitionHandling
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.known_defects import DECIDES_TOO_SOON
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.workload.workload_model import Workload
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.plays


#: On a busy machine the sides of a split restart more than once, and more goes than what one of them had created.
DECIDES_ANEW = DECIDES_TOO_SOON.model_copy(update={"invariant": "metadata", "invariants_also": ()})


def played(testbed: RunContext, queue_type: Any, mode: PartitionHandling) -> tuple[Result, dict[str, Any]]:
    """The result, and the numbers of the invariant."""
    shape = topology_catalogue.load("three_nodes_three_zones").model_copy(update={"partition_handling": mode})
    scenario = Scenario(
        title=f"Declared in a cut, {queue_type}, {mode}",
        topology=shape,
        workload=Workload(queue_type=queue_type, rate_per_s=200, declare_every_s=0.4),
        phases=Phases(steady_s=2, recovery_s=60, settled_s=2),
        schedule=(Partition(at_s=1, for_s=15, between=("zone:c", "rest")),),
        invariants=Invariants.model_validate({"metadata": {}}),
        expect=(DECIDES_ANEW,) if mode == "autoheal" else (),
    )
    result = run_validated(scenario, testbed)
    numbers: dict[str, Any] = result.document["invariants"]["metadata"]["numbers"]
    return result, numbers


@pytest.mark.parametrize("queue_type", ["quorum", "mirrored"])
def test_a_paused_minority_takes_over_what_the_majority_declared(own_testbed: RunContext, queue_type: Any) -> None:
    """What the majority created is kept. What the minority created before it paused may be gone, which is a promise
    that 3.10 breaks (see ``suites.test_metadata``), and nothing else is."""
    result, numbers = played(own_testbed, queue_type, "pause_minority")
    assert numbers["created_beside_cut"] > 0
    assert numbers["lost_through"] in ("", "c1"), result.story()
    assert numbers["differing"] == 0
    assert result.verdict is (Verdict.INVALID if numbers["lost"] else Verdict.VALID), result.story()
    asked = [e for e in result.run.events() if isinstance(e, DeclarationEvent)]
    assert {e.node for e in asked if e.state == "unanswered"} >= {"c1"}


def test_what_the_side_that_autoheal_gives_up_had_created_is_gone_and_permitted(own_testbed: RunContext) -> None:
    result, numbers = played(own_testbed, "mirrored", "autoheal")
    assert result.as_expected, result.story()
    if result.verdict is Verdict.VALID:
        assert numbers["lost_permitted"] > 0
        assert numbers["differing_permitted"] == 0
