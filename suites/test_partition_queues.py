"""Queues with fewer copies than nodes, and mirrors that are not synchronised: a zone with a minority is cut off.

Of five nodes, zone c has one, so that every queue keeps a majority of its members, or a mirror, on the other side.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.queue_settings import Mirroring
from rabbitmq_resilience.workload.workload_model import Workload
from suites.partitions import FIRST_STEP_S, assert_paused, long_cut_s, partition_scenario, shape, workload

pytestmark = [pytest.mark.partitions, pytest.mark.slow]

LEADERS = ("a1", "b1", "c1")
QUEUES: dict[str, Workload] = {
    "quorum_of_three": workload("quorum", group_size=3, leaders_on=LEADERS),
    "quorum_of_five": workload("quorum", group_size=5, leaders_on=LEADERS),
    "mirrored_exactly_two": workload(
        "mirrored", mirroring=Mirroring(ha_mode="exactly", ha_params=2), leaders_on=LEADERS
    ),
    "mirrored_synchronised_by_hand": workload(
        "mirrored", mirroring=Mirroring(ha_sync_mode="manual"), leaders_on=LEADERS
    ),
}


@pytest.mark.parametrize("queues", QUEUES)
def test_minority_zone_cut_off(queues: str, net_ticktime_s: int, play: Callable[[Scenario], Result]) -> None:
    cluster = shape("five_nodes_three_zones", net_ticktime_s)
    cut = Partition(at_s=FIRST_STEP_S, for_s=long_cut_s(cluster), between=("zone:c", "rest"))
    title = f"{queues.replace('_', ' ').capitalize()}, a minority zone is cut off"
    result = play(partition_scenario(title, cluster, QUEUES[queues], cut))
    assert_paused(result, "c1")
