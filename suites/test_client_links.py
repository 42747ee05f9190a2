"""Clients are cut from their brokers, one way or both, or their connections are reset; nothing confirmed is lost.

Heartbeats end silent connections. Every queue has another publisher, whose confirms go on.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rabbitmq_resilience.nemesis.disconnect import Disconnect
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.flapping import Flapping
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.guarantees import ELECTED_AFTER_S
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.workload_model import Workload
from suites.partitions import FIRST_STEP_S, QUEUE_TYPES, partition_scenario, shape, workload

pytestmark = [pytest.mark.partitions, pytest.mark.slow]

Play = Callable[[Scenario], Result]

#: Long enough for both sides to give up the connection: two heartbeats are missed, and a third is on its way.
SILENT_S = 3.0 * Workload().heartbeat_s
FAULTS: dict[str, AnyFault] = {
    "publisher_cut_off": Partition(at_s=FIRST_STEP_S, for_s=SILENT_S, between=("publisher:0", "all")),
    "publisher_half_open_to_broker": Partition(
        at_s=FIRST_STEP_S, for_s=SILENT_S, between=("publisher:0", "all"), one_way=True
    ),
    "publisher_half_open_from_broker": Partition(
        at_s=FIRST_STEP_S, for_s=SILENT_S, between=("all", "publisher:0"), one_way=True
    ),
    "publisher_reset": Disconnect(at_s=FIRST_STEP_S, for_s=0.05, between=("publisher:0", "all")),
    "publisher_flapping": Flapping(at_s=FIRST_STEP_S, for_s=8, period_s=0.5, between=("publisher:0", "all")),
    "consumer_cut_off": Partition(at_s=FIRST_STEP_S, for_s=SILENT_S, between=("consumer:0", "all")),
    "consumer_half_open_from_broker": Partition(
        at_s=FIRST_STEP_S, for_s=SILENT_S, between=("all", "consumer:0"), one_way=True
    ),
    "consumer_reset": Disconnect(at_s=FIRST_STEP_S, for_s=0.05, between=("consumer:0", "all")),
}


@pytest.mark.parametrize("queue_type", QUEUE_TYPES)
@pytest.mark.parametrize("fault", FAULTS)
def test_client(fault: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    cluster = shape("three_nodes_three_zones", net_ticktime_s)
    two_publishers_each = workload(queue_type, publishers=6)
    title = fault.replace("_", " ").capitalize()
    play(
        partition_scenario(
            title,
            cluster,
            two_publishers_each,
            FAULTS[fault],
            settled_after_s=ELECTED_AFTER_S,
            without=["partition_mode"],
        )
    )
