"""A zone is cut off: who pauses, who goes on, and what happened to every message.

``pytest -m partitions`` runs all of it; ``-m "partitions and not slow"`` what fits in a quarter of an hour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faults.latency import Latency
from faults.partition import Partition
from faults.scenario import Invariants, Phases, Scenario
from invariants.partition_mode import PartitionMode
from suites.judging import Result
from topologies import catalogue
from workloads.spec import Mirroring, Workload

pytestmark = pytest.mark.partitions

Play = Callable[[Scenario], Result]

QUEUE_TYPES = ("quorum", "mirrored")
TOPOLOGIES = (
    pytest.param("three_nodes_three_zones", id="three_nodes"),
    pytest.param("five_nodes_three_zones", id="five_nodes"),
    pytest.param("seven_nodes_three_zones", id="seven_nodes", marks=pytest.mark.slow),
)

#: For clients to connect elsewhere and for leaders to be elected.
ELECTED_AFTER_S = 5.0
WINDOW_S = 2.5
FIRST_STEP_S = 1.0


def noticed_s(net_ticktime_s: int) -> float:
    """The longest that Erlang takes to notice a silent peer: kernel(6), net_ticktime."""
    return 1.25 * net_ticktime_s


def stall_s_max(net_ticktime_s: int) -> float:
    """The longest that a queue with a majority may stand still: the cut is noticed; a publisher that is then served
    by a broker which still takes the old leader for the leader gets no confirm until its patience ends, and goes
    elsewhere."""
    return noticed_s(net_ticktime_s) + Workload().confirm_timeout_s + ELECTED_AFTER_S


def long_cut_s(net_ticktime_s: int) -> float:
    """Longer than any queue with a majority may stand still, so that one that does is told from one that waits."""
    return stall_s_max(net_ticktime_s) + 2 * WINDOW_S


def short_cut_s(net_ticktime_s: int) -> float:
    """Over before anybody can have noticed, yet longer than a quarter of it, at which every link has a tick to hold."""
    return 0.5 * net_ticktime_s


@pytest.fixture(params=QUEUE_TYPES)
def workload(request: pytest.FixtureRequest) -> Workload:
    """The same load for both queue types: three queues, led from different zones."""
    common: dict[str, Any] = {"queues": 3, "publishers": 3, "consumers": 3, "rate_per_s": 450}
    if request.param == "mirrored":
        return Workload(queue_type="mirrored", mirroring=Mirroring(), **common)
    return Workload(queue_type="quorum", **common)


def partition_scenario(
    title: str,
    topology: str,
    net_ticktime_s: int,
    workload: Workload,
    *schedule: Partition | Latency,
    settled_after_s: float | None = None,
) -> Scenario:
    """A scenario with every promise demanded that a cluster under ``pause_minority`` gives.

    Throughput is demanded ``settled_after_s`` after each change, by default once no queue may stand still any more.
    The load goes on for that long after recovery, and for two windows more, if the cut itself leaves no time for them.
    """
    shape = catalogue.load(topology).model_copy(update={"net_ticktime_s": net_ticktime_s})
    stall_s = stall_s_max(net_ticktime_s)
    grace_s = stall_s if settled_after_s is None else settled_after_s
    return Scenario(
        title=f"{title}, {shape.name}, {workload.queue_type}",
        broker=">=3.8,<4.3" if workload.queue_type == "quorum" else ">=3.8,<4",
        seed=4711,
        topology=shape,
        workload=workload,
        phases=Phases(
            steady_s=5,
            recovery_s=60,
            settled_s=WINDOW_S if settled_after_s is None else settled_after_s + 2 * WINDOW_S,
            drain_s=60,
        ),
        schedule=schedule,
        invariants=Invariants.model_validate(
            {
                "no_loss": {},
                "order": {},
                "availability": {"stall_s_max": stall_s},
                "recovery": {"within_s": 30},
                "throughput": {"ratio_min": 0.5, "window_s": WINDOW_S, "grace_s": grace_s},
                "partition_mode": {},
            }
        ),
    )


def paused(result: Result) -> str:
    """The nodes of which it was demanded, and seen, that they pause."""
    return str(result.document["invariants"]["partition_mode"]["numbers"]["had_to_pause"])


def nodes_of(topology: str, zone: str) -> str:
    return " ".join(node.name for node in catalogue.load(topology).nodes if node.zone == zone)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_minority_zone_cut_off(topology: str, workload: Workload, net_ticktime_s: int, play: Play) -> None:
    cut = Partition(at_s=FIRST_STEP_S, for_s=long_cut_s(net_ticktime_s), between=("zone:c", "rest"))
    led_anywhere = workload.model_copy(update={"leaders_on": ("a1", "b1", "c1")})
    result = play(partition_scenario("A minority zone is cut off", topology, net_ticktime_s, led_anywhere, cut))
    assert paused(result) == nodes_of(topology, "c")


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_cut_shorter_than_net_ticktime(topology: str, workload: Workload, net_ticktime_s: int, play: Play) -> None:
    cut = Partition(at_s=FIRST_STEP_S, for_s=short_cut_s(net_ticktime_s), between=("zone:c", "rest"))
    led_anywhere = workload.model_copy(update={"leaders_on": ("a1", "b1", "c1")})
    result = play(
        partition_scenario(
            "A cut too short to be noticed",
            topology,
            net_ticktime_s,
            led_anywhere,
            cut,
            settled_after_s=ELECTED_AFTER_S,
        )
    )
    assert not paused(result)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_leaders_zone_cut_off(topology: str, workload: Workload, net_ticktime_s: int, play: Play) -> None:
    led_there = workload.model_copy(update={"leaders_on": ("zone:a",)})
    cut = Partition(at_s=FIRST_STEP_S, for_s=long_cut_s(net_ticktime_s), between=("zone:a", "rest"))
    result = play(partition_scenario("The zone of all leaders is cut off", topology, net_ticktime_s, led_there, cut))
    assert paused(result) == nodes_of(topology, "a")


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_cut_with_latency_on_the_other_links(
    topology: str, workload: Workload, net_ticktime_s: int, play: Play
) -> None:
    cut = Partition(at_s=FIRST_STEP_S, for_s=long_cut_s(net_ticktime_s), between=("zone:c", "rest"))
    slow = Latency(at_s=0.0, for_s=cut.for_s + 2, links="zone:a <-> zone:b", latency_ms=40, jitter_ms=10)
    play(
        partition_scenario("A zone is cut off, the others are far apart", topology, net_ticktime_s, workload, slow, cut)
    )


def test_even_split(workload: Workload, net_ticktime_s: int, play: Play) -> None:
    """Nobody goes on, so there is nothing to wait for once all must have paused; what counts is how it comes back."""
    all_paused_s = noticed_s(net_ticktime_s) + PartitionMode().margin_s
    cut = Partition(at_s=FIRST_STEP_S, for_s=all_paused_s + WINDOW_S, between=("zone:a", "zone:b"))
    result = play(
        partition_scenario(
            "An even split", "four_nodes_two_zones", net_ticktime_s, workload, cut, settled_after_s=ELECTED_AFTER_S
        )
    )
    assert paused(result) == "a1 a2 b1 b2"
