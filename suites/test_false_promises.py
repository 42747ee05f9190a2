"""Messages that were confirmed during a cut are there after it. Publishers and consumers are on both sides all the
time.

A broker that confirms a message, then pauses, and comes back with the other side's state has made a false promise.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.guarantees import stall_s_max
from rabbitmq_resilience.scenario.known_defects import CONFIRMED_IN_A_MINORITY
from rabbitmq_resilience.scenario.model import Scenario
from suites.partitions import FIRST_STEP_S, assert_paused, long_cut_s, nodes_of, partition_scenario, shape, workload

pytestmark = [pytest.mark.partitions, pytest.mark.slow]

Play = Callable[[Scenario], Result]


TOPOLOGY = "three_nodes_three_zones"


@pytest.mark.parametrize("queue_type", ["quorum", "mirrored", "classic"])
@pytest.mark.parametrize("mode", ["pause_minority", "pause_if_all_down"])
def test_confirmed_during_the_cut(mode: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    choice = {"nodes": ("a1",)} if mode == "pause_if_all_down" else {}
    cluster = shape(TOPOLOGY, net_ticktime_s, mode, **choice)
    # Four queues and three nodes: publishers in turn reach every queue from every zone.
    on_every_side = workload(queue_type, queues=4, publishers=12, consumers=4, reconnect="own_zone", rate_per_s=480)
    cut = Partition(at_s=FIRST_STEP_S, for_s=long_cut_s(cluster), between=("zone:c", "rest"))
    without = ["throughput"] if queue_type == "classic" else []  # a queue whose only copy is cut off stands still
    title = "Confirmed during a cut, clients on both sides"
    expect = [CONFIRMED_IN_A_MINORITY] if queue_type == "mirrored" else []
    settled_after_s = stall_s_max(net_ticktime_s)  # a side that paused has no publishers until the cut is healed
    result = play(
        partition_scenario(
            title, cluster, on_every_side, cut, settled_after_s=settled_after_s, without=without, expect=expect
        )
    )
    assert_paused(result, nodes_of(cluster, "c"))
