"""Queues, bindings and policies are declared on both sides of a cut. Afterwards each of them is everywhere or nowhere,
and what a broker reported as created is everywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rabbitmq_resilience.checkers.metadata import Metadata
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.model import Invariants, Scenario
from suites.partitions import (
    FIRST_STEP_S,
    QUEUE_TYPES,
    assert_paused,
    long_cut_s,
    nodes_of,
    partition_scenario,
    shape,
    workload,
)

pytestmark = [pytest.mark.partitions, pytest.mark.slow]

#: A declaration that hangs because a peer is silent goes on once that peer is considered dead. A node that finds itself
#: in a minority then still writes the declaration to its own copy of Mnesia, reports it as created, and only then
#: pauses. When it comes back it takes over what the others have, as the reference says of nodes that were disconnected.
CREATED_IN_A_MINORITY = Expectation(
    broker="<4.2",
    verdict=Verdict.INVALID,
    invariant="metadata",
    reference="rabbitmq/rabbitmq-server#1841",
    intermittent=True,
)

#: Each node gets several declarations before it notices the cut, and many once it has.
DECLARE_EVERY_S = 0.4


@pytest.mark.parametrize("queue_type", QUEUE_TYPES)
def test_declared_while_a_minority_zone_is_cut_off(
    queue_type: str, net_ticktime_s: int, play: Callable[[Scenario], Result]
) -> None:
    topology = shape("three_nodes_three_zones", net_ticktime_s)
    load = workload(queue_type, declare_every_s=DECLARE_EVERY_S)
    cut = Partition(at_s=FIRST_STEP_S, for_s=long_cut_s(topology), between=("zone:c", "rest"))
    scenario = partition_scenario(
        "Declared while a minority zone is cut off", topology, load, cut, expect=[CREATED_IN_A_MINORITY]
    )
    demanded = Invariants.model_validate({**scenario.chosen_invariants, "metadata": Metadata()})
    result = play(scenario.model_copy(update={"invariants": demanded}))
    assert_paused(result, nodes_of(topology, "c"))
    numbers = result.document["invariants"]["metadata"]["numbers"]
    assert numbers["created_beside_cut"] > 0
    assert numbers["lost_through"] in ("", nodes_of(topology, "c"))
    assert numbers["differing"] == 0
