"""Cuts of every shape under ``pause_minority``: in two and in three, partial, one way, flapping, and blips.

``checkers.oracle`` predicts from the shape which nodes pause, if any. In addition, each test states what a reader
would expect of its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.disconnect import Disconnect
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.flapping import Flapping
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.guarantees import ELECTED_AFTER_S
from rabbitmq_resilience.scenario.known_defects import CUT_OFF_AS_IT_STARTS
from rabbitmq_resilience.scenario.model import Scenario
from suites.partitions import (
    FIRST_STEP_S,
    QUEUE_TYPES,
    acted_upon_s,
    assert_paused,
    long_cut_s,
    nodes_of,
    partition_scenario,
    shape,
    workload,
)

pytestmark = pytest.mark.partitions

Play = Callable[[Scenario], Result]

THREE = "three_nodes_three_zones"
FIVE = "five_nodes_three_zones"
ALL_APART = ("a1", "b1", "c1")
slow = pytest.mark.slow
on_both_queues = pytest.mark.parametrize("queue_type", QUEUE_TYPES)
three_and_five = pytest.mark.parametrize(
    "topology", [pytest.param(THREE, id="three_nodes"), pytest.param(FIVE, id="five_nodes")]
)
on_three = pytest.mark.parametrize("topology", [pytest.param(THREE, id="three_nodes")])


@pytest.fixture
def cluster(topology: str, net_ticktime_s: int) -> Topology:
    return shape(topology, net_ticktime_s)


def played(
    play: Play,
    title: str,
    cluster: Topology,
    queue_type: str,
    *schedule: AnyFault,
    expect: Sequence[Expectation] = (),
) -> Result:
    """Play the cut with leaders in each zone. Throughput is judged after recovery, as most of these cuts leave no quiet
    time before."""
    load = workload(queue_type, leaders_on=("a1", "b1", "c1"))
    return play(partition_scenario(title, cluster, load, *schedule, settled_after_s=ELECTED_AFTER_S, expect=expect))


@slow
@on_both_queues
@three_and_five
def test_one_way(cluster: Topology, queue_type: str, play: Play) -> None:
    """Zone c hears all, but nothing that it sends is received: this has the effect of a cut both ways."""
    load = workload(queue_type, leaders_on=("a1", "b1", "c1"))
    cut = Partition(at_s=FIRST_STEP_S, for_s=long_cut_s(cluster), between=("zone:c", "rest"), one_way=True)
    result = play(partition_scenario("A zone is not heard, one way", cluster, load, cut))
    assert_paused(result, nodes_of(cluster, "c"))


@slow
@on_both_queues
@three_and_five
def test_one_node_alone(cluster: Topology, queue_type: str, play: Play) -> None:
    cut = Partition(at_s=FIRST_STEP_S, for_s=long_cut_s(cluster), between=("a1", "rest"))
    result = play(partition_scenario("One node is cut off", cluster, workload(queue_type), cut))
    assert_paused(result, "a1")


@slow
@on_both_queues
@three_and_five
def test_three_parts(cluster: Topology, queue_type: str, play: Play) -> None:
    """No part is a majority, so all nodes pause."""
    cut = Partition(at_s=FIRST_STEP_S, for_s=acted_upon_s(cluster), between=("zone:a", "zone:b", "zone:c"))
    result = played(play, "A cut in three parts", cluster, queue_type, cut)
    assert_paused(result, " ".join(cluster.node_names))


@slow
@on_both_queues
@three_and_five
def test_partial(cluster: Topology, queue_type: str, play: Play) -> None:
    """Only a1 and c1 lose each other, and all others see both: at least one of the two pauses."""
    cut = Partition(at_s=FIRST_STEP_S, for_s=acted_upon_s(cluster), between=("a1", "c1"))
    played(play, "One pair of nodes is cut apart", cluster, queue_type, cut)


@slow
@on_both_queues
@pytest.mark.parametrize("topology", [pytest.param(FIVE, id="five_nodes")])
def test_bridge(cluster: Topology, queue_type: str, play: Play) -> None:
    """Zones a and b lose each other, and c1 reaches both."""
    cut = Partition(at_s=FIRST_STEP_S, for_s=acted_upon_s(cluster), between=("zone:a", "zone:b"))
    played(play, "One node is the bridge between two zones", cluster, queue_type, cut)


@on_three
@pytest.mark.parametrize(
    ("period_s", "queue_type"),
    [
        pytest.param(period_s, queue_type, marks=() if (period_s, queue_type) == (0.4, "quorum") else slow)
        for period_s in (0.4, 1.0, 4.0)
        for queue_type in QUEUE_TYPES
    ],
)
def test_flapping(cluster: Topology, queue_type: str, period_s: float, play: Play) -> None:
    """Each cut is too short to be noticed. A period of 0.1 s cannot be kept if other clusters run on the machine."""
    flaps = Flapping(at_s=FIRST_STEP_S, for_s=10, period_s=period_s, between=("zone:c", "rest"))
    played(play, f"A link flaps every {period_s:g} s", cluster, queue_type, flaps)


@slow
@on_both_queues
@on_three
@pytest.mark.parametrize("blip_ms", [4, 50], ids="{}ms".format)
def test_blip_of_held_packets(cluster: Topology, queue_type: str, blip_ms: int, play: Play) -> None:
    """The blip is on all links at once, and over before any node can notice it."""
    blip = Partition(at_s=FIRST_STEP_S, for_s=blip_ms / 1000, between=ALL_APART)
    result = played(play, f"All links hold packets for {blip_ms} ms", cluster, queue_type, blip)
    assert_paused(result, "")


@slow
@on_both_queues
@on_three
@pytest.mark.parametrize("blip_ms", [4, 50], ids="{}ms".format)
def test_blip_of_dropped_connections(cluster: Topology, queue_type: str, blip_ms: int, play: Play) -> None:
    """The blip is on all links at once: each node sees all others vanish and return."""
    blip = Disconnect(at_s=FIRST_STEP_S, for_s=blip_ms / 1000, between=ALL_APART)
    played(play, f"All links drop their connections for {blip_ms} ms", cluster, queue_type, blip)


@slow
@on_both_queues
@on_three
def test_zone_disconnected(cluster: Topology, queue_type: str, play: Play) -> None:
    """Connections are reset and refused, so brokers notice the fault at once."""
    cut = Disconnect(at_s=FIRST_STEP_S, for_s=acted_upon_s(cluster), between=("zone:c", "rest"))
    result = played(play, "A zone is disconnected", cluster, queue_type, cut)
    assert_paused(result, "c1")


@slow
@on_both_queues
@on_three
def test_second_cut_during_recovery(cluster: Topology, queue_type: str, play: Play) -> None:
    """The node that was cut off is cut off again while it comes back and its mirrors synchronise."""
    for_s = acted_upon_s(cluster)
    first = Partition(at_s=FIRST_STEP_S, for_s=for_s, between=("zone:c", "rest"))
    again = Partition(at_s=FIRST_STEP_S + for_s + 1.5, for_s=for_s, between=("zone:c", "rest"))
    title = "A zone is cut off again while it recovers"
    result = played(play, title, cluster, queue_type, first, again, expect=CUT_OFF_AS_IT_STARTS)
    assert_paused(result, "c1")


@slow
@on_both_queues
@three_and_five
def test_rolling_cut(cluster: Topology, queue_type: str, play: Play) -> None:
    """Each zone is cut off in turn, with time to come back in between."""
    for_s = acted_upon_s(cluster)
    cuts = [
        Partition(at_s=FIRST_STEP_S + i * (for_s + 15), for_s=for_s, between=(f"zone:{zone}", "rest"))
        for i, zone in enumerate("abc")
    ]
    title = "A cut wanders over the zones"
    result = played(play, title, cluster, queue_type, *cuts, expect=CUT_OFF_AS_IT_STARTS)
    if result.verdict is Verdict.VALID:
        assert_paused(result, " ".join(cluster.node_names))
