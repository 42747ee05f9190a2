"""Real brokers that are asked for queues, bindings and policies while a minority is cut off."""

from __future__ import annotations

from typing import Any

import pytest

from faults.partition import Partition
from faults.scenario import Invariants, Phases, Scenario
from invariants.verdict import Verdict
from suites.judging import Result
from suites.scenario import Bench, run_scenario
from topologies import catalogue
from topologies.spec import PartitionHandling
from workloads.spec import Workload

pytestmark = pytest.mark.broker


def played(bench: Bench, queue_type: Any, mode: PartitionHandling) -> tuple[Result, dict[str, Any]]:
    """The result, and the numbers of the invariant."""
    shape = catalogue.load("three_nodes_three_zones").model_copy(update={"partition_handling": mode})
    scenario = Scenario(
        title=f"Declared in a cut, {queue_type}, {mode}",
        topology=shape,
        workload=Workload(queue_type=queue_type, rate_per_s=200, declare_every_s=0.4),
        phases=Phases(steady_s=2, recovery_s=60, settled_s=2),
        schedule=(Partition(at_s=1, for_s=15, between=("zone:c", "rest")),),
        invariants=Invariants.model_validate({"metadata": {}}),
    )
    result = run_scenario(scenario, bench)
    numbers: dict[str, Any] = result.document["invariants"]["metadata"]["numbers"]
    return result, numbers


@pytest.mark.parametrize("queue_type", ["quorum", "mirrored"])
def test_a_paused_minority_takes_over_what_the_majority_declared(own_bench: Bench, queue_type: Any) -> None:
    """What the majority created is kept. What the minority created before it paused may be gone, which is a promise
    that 3.10 breaks (see ``suites.test_metadata``), and nothing else is."""
    result, numbers = played(own_bench, queue_type, "pause_minority")
    assert numbers["created_beside_cut"] > 0
    assert numbers["lost_through"] in ("", "c1"), result.document
    assert numbers["differing"] == 0
    assert result.verdict is (Verdict.INVALID if numbers["lost"] else Verdict.VALID), result.document
    asked = [e for e in result.run.events() if e["kind"] == "declaration"]
    assert {e["node"] for e in asked if e["state"] == "unanswered"} >= {"c1"}


def test_what_the_side_that_autoheal_gives_up_had_created_is_gone_and_permitted(own_bench: Bench) -> None:
    result, numbers = played(own_bench, "mirrored", "autoheal")
    assert result.verdict is Verdict.VALID, result.document
    assert numbers["lost_permitted"] > 0
    assert numbers["differing_permitted"] == 0
