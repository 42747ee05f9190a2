"""The other ways to handle a partition, on every cluster size, over two and three zones.

``pause_if_all_down`` prefers a node of zone a. ``autoheal`` lets both sides go on and restarts one of them afterwards.
With ``ignore`` both sides stay separate until an operator restarts the nodes that he trusts less: here those that were
cut off, as the documentation advises. For the last two modes, the verdict counts the losses that they permit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.guarantees import ELECTED_AFTER_S
from rabbitmq_resilience.scenario.known_defects import DECIDES_TOO_SOON, DISCARDS_TOO_MUCH
from rabbitmq_resilience.scenario.model import Scenario
from suites.partitions import (
    FIRST_STEP_S,
    QUEUE_TYPES,
    assert_paused,
    long_cut_s,
    nodes_of,
    on_all_nodes,
    partition_scenario,
    shape,
    workload,
)

pytestmark = pytest.mark.partitions

Play = Callable[[Scenario], Result]

#: The zone that is cut off: always a minority or half.
CUT_OFF = {
    "three_nodes_three_zones": "c",
    "three_nodes_two_zones": "b",
    "four_nodes_two_zones": "b",
    "four_nodes_three_zones": "c",
    "five_nodes_two_zones": "b",
    "five_nodes_three_zones": "c",
    "seven_nodes_two_zones": "b",
    "seven_nodes_three_zones": "c",
}
OTHER_MODES = ("pause_if_all_down", "autoheal", "ignore")
#: How long the brokers have to see each other again before one side is restarted, and how long that side stays away.
OPERATOR_WAITS_S = 5.0
RESTART_TAKES_S = 8.0


#: The cells of the quick set; the others are played at night.
QUICK = {("pause_if_all_down", "three_nodes_three_zones", "mirrored")}


def cells(modes: tuple[str, ...], topologies: tuple[str, ...]) -> list[object]:
    return [
        pytest.param(*cell, id="-".join(cell), marks=() if cell in QUICK else pytest.mark.slow)
        for cell in itertools.product(modes, topologies, QUEUE_TYPES)
    ]


@pytest.mark.parametrize(
    ("mode", "topology", "queue_type"),
    [
        *cells(OTHER_MODES, tuple(CUT_OFF)),
        *cells(("pause_minority",), ("three_nodes_two_zones", "five_nodes_two_zones", "seven_nodes_two_zones")),
        *cells(("pause_minority",), ("four_nodes_three_zones",)),
    ],
)
def test_zone_cut_off(mode: str, topology: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    zone = CUT_OFF[topology]
    choice = {"nodes": ("a1",)} if mode == "pause_if_all_down" else {}
    cluster = shape(topology, net_ticktime_s, mode, **choice)
    cut_s = long_cut_s(cluster)
    cut = Partition(at_s=FIRST_STEP_S, for_s=cut_s, between=(f"zone:{zone}", "rest"))
    restart = Stop(at_s=FIRST_STEP_S + cut_s + OPERATOR_WAITS_S, for_s=RESTART_TAKES_S, node=f"zone:{zone}")
    schedule = (cut, restart) if mode == "ignore" else (cut,)
    load = workload(queue_type, **on_all_nodes(queue_type, cluster))
    expect = [DECIDES_TOO_SOON, DISCARDS_TOO_MUCH] if mode == "autoheal" else []
    # Neither of two halves has a majority: there is nothing to measure before they are joined again.
    halves = 2 * cluster.zones[zone] == len(cluster.nodes)
    settled_after_s = ELECTED_AFTER_S if halves else None
    result = play(
        partition_scenario(
            "A zone is cut off", cluster, load, *schedule, settled_after_s=settled_after_s, expect=expect
        )
    )
    assert_paused(result, nodes_of(cluster, zone) if mode.startswith("pause") else "")
