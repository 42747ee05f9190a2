"""A zone is cut off under ``pause_minority``: which nodes pause, which go on, and what happened to every message.

``pytest -m partitions`` runs all scenarios of partitions; ``-m "partitions and not slow"`` runs those that fit in a
quarter of an hour.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.latency import Latency
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.guarantees import ELECTED_AFTER_S
from rabbitmq_resilience.scenario.model import Scenario
from suites.partitions import (
    FIRST_STEP_S,
    QUEUE_TYPES,
    acted_upon_s,
    assert_paused,
    long_cut_s,
    nodes_of,
    on_all_nodes,
    partition_scenario,
    shape,
    short_cut_s,
    workload,
)

pytestmark = [pytest.mark.partitions, pytest.mark.parametrize("queue_type", QUEUE_TYPES)]

Play = Callable[[Scenario], Result]

each_size = pytest.mark.parametrize(
    "topology",
    [
        pytest.param("three_nodes_three_zones", id="three_nodes"),
        pytest.param("five_nodes_three_zones", id="five_nodes"),
        pytest.param("seven_nodes_three_zones", id="seven_nodes", marks=pytest.mark.slow),
    ],
)

#: A leader in each zone, so that any zone that is cut off leads some queue.
EVERYWHERE = ("a1", "b1", "c1")


def cut_off(zone: str, topology: Topology) -> Partition:
    return Partition(at_s=FIRST_STEP_S, for_s=long_cut_s(topology), between=(zone, "rest"))


@each_size
def test_minority_zone_cut_off(topology: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    cluster, load = shape(topology, net_ticktime_s), workload(queue_type, leaders_on=EVERYWHERE)
    result = play(partition_scenario("A minority zone is cut off", cluster, load, cut_off("zone:c", cluster)))
    assert_paused(result, nodes_of(cluster, "c"))


@each_size
def test_cut_shorter_than_net_ticktime(topology: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    cluster, load = shape(topology, net_ticktime_s), workload(queue_type, leaders_on=EVERYWHERE)
    cut = Partition(at_s=FIRST_STEP_S, for_s=short_cut_s(net_ticktime_s), between=("zone:c", "rest"))
    result = play(
        partition_scenario("A cut too short to be noticed", cluster, load, cut, settled_after_s=ELECTED_AFTER_S)
    )
    assert_paused(result, "")


@each_size
def test_leaders_zone_cut_off(topology: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    cluster = shape(topology, net_ticktime_s)
    load = workload(queue_type, leaders_on=("zone:a",), **on_all_nodes(queue_type, cluster))
    result = play(partition_scenario("The zone of all leaders is cut off", cluster, load, cut_off("zone:a", cluster)))
    assert_paused(result, nodes_of(cluster, "a"))


@each_size
def test_cut_with_latency_on_the_other_links(topology: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    cluster, load = shape(topology, net_ticktime_s), workload(queue_type)
    cut = cut_off("zone:c", cluster)
    slow = Latency(at_s=0.0, for_s=cut.for_s + 2, links="zone:a <-> zone:b", latency_ms=40, jitter_ms=10)
    result = play(partition_scenario("A zone is cut off, the others are far apart", cluster, load, slow, cut))
    assert_paused(result, nodes_of(cluster, "c"))


@pytest.mark.parametrize("topology", ["four_nodes_two_zones"])
def test_even_split(topology: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """No node goes on, so there is nothing to wait for once all must have paused. Only the way back matters."""
    cluster, load = shape(topology, net_ticktime_s), workload(queue_type)
    cut = Partition(at_s=FIRST_STEP_S, for_s=acted_upon_s(cluster), between=("zone:a", "zone:b"))
    result = play(partition_scenario("An even split", cluster, load, cut, settled_after_s=ELECTED_AFTER_S))
    assert_paused(result, "a1 a2 b1 b2")
