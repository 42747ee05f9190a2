"""All nodes are restarted one after another during the load, as operators do it, and as they should not.

Operators wait until no queue depends on the next node. Without that wait, the next node goes as soon as the one before
has been started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from rabbitmq_resilience.checkers.measured import curves, of_nodes
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.conditions import AfterStep, NodeIs, NotCritical, When
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.rebalance import Rebalance
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.model import Scenario
from suites.case_study import FIRST_STEP_S, adverse_scenario, load
from suites.partitions import QUEUE_TYPES, shape

pytestmark = [pytest.mark.rolling_restarts, pytest.mark.slow, pytest.mark.parametrize("queue_type", QUEUE_TYPES)]

Play = Callable[[Scenario], Result]

#: How long each node stays away.
AWAY_S = 2.0
#: How long a node has to come up before the operator looks again.
BETWEEN_S = 1.0
REBALANCE_WITHIN_S = 10.0
#: The longest that a node may keep the next one waiting, for each node of the cluster. On two cores, a node of three is
#: back after 10 s, and one of five after 60 s, as the others keep these cores busy.
EACH_S = 20.0

HOW: Mapping[str, Mapping[str, Any]] = {
    "graceful": {"fault": "stop"},
    "hard": {"fault": "kill"},
    "drained": {"fault": "stop", "drain": True},
}
NEW_SETTINGS = {"vm_memory_high_watermark.relative": "0.3"}


def rolling(topology: Topology, *, waiting: bool, fault: str, rounds: int = 1, **fields: Any) -> Iterator[AnyFault]:
    """Yield the restart of each node in turn, and then a rebalance of the leaders; all of that ``rounds`` times."""
    restart = {"stop": Stop, "kill": Kill}[fault]
    names = topology.node_names
    for begins in range(0, rounds * (len(names) + 1), len(names) + 1):
        for i, node in enumerate(names):
            yield restart(for_s=AWAY_S, node=node, **fields, **turn(begins + i, node, names[i - 1], waiting=waiting))
        last = AfterStep(step=begins + len(names) - 1, wait_s=BETWEEN_S)
        all_back = When(after_step=last, node_is=NodeIs(node=names[-1], state="up"))
        yield Rebalance(when=all_back, for_s=REBALANCE_WITHIN_S)


def turn(step: int, node: str, before: str, *, waiting: bool) -> dict[str, Any]:
    """Return when ``node`` is restarted, as fields of its step: after the previous step and, if ``waiting``, once
    ``before`` is up and no queue depends on ``node``."""
    if step == 0:
        return {"at_s": FIRST_STEP_S}
    if not waiting:
        return {"when": When(after_step=AfterStep(step=step - 1))}
    back = NodeIs(node=before, state="up")
    after = AfterStep(step=step - 1, wait_s=BETWEEN_S)
    return {"when": When(after_step=after, node_is=back, not_critical=NotCritical(node=node))}


def rolled(
    play: Play, title: str, topology: Topology, queue_type: str, scale: float, *, waiting: bool, **how: Any
) -> Result:
    schedule = tuple(rolling(topology, waiting=waiting, **how))
    lasting = {"chaos_s": EACH_S * len(topology.nodes) * len(schedule)}
    demanded: dict[str, dict[str, Any]] = {"leaders_spread": {}} if waiting else {}
    scenario = adverse_scenario(title, topology, load(queue_type, scale), *schedule, phases=lasting, demanded=demanded)
    return play(scenario)


@pytest.mark.parametrize("how", HOW)
def test_waiting_for_queues(how: str, queue_type: str, scale: float, net_ticktime_s: int, play: Play) -> None:
    topology = shape("three_nodes_three_zones", net_ticktime_s)
    title = f"Rolling restart, {how}, waiting for queues"
    rolled(play, title, topology, queue_type, scale, waiting=True, **HOW[how])


@pytest.mark.parametrize("how", HOW)
def test_not_waiting(how: str, queue_type: str, scale: float, net_ticktime_s: int, play: Play) -> None:
    topology = shape("three_nodes_three_zones", net_ticktime_s)
    title = f"Rolling restart, {how}, not waiting"
    rolled(play, title, topology, queue_type, scale, waiting=False, **HOW[how])


def test_five_nodes(queue_type: str, scale: float, net_ticktime_s: int, play: Play) -> None:
    topology = shape("five_nodes_three_zones", net_ticktime_s)
    title = "Rolling restart, graceful, waiting for queues"
    rolled(play, title, topology, queue_type, scale, waiting=True, **HOW["graceful"])


def test_configuration_changed_on_the_way(queue_type: str, scale: float, net_ticktime_s: int, play: Play) -> None:
    """Each node may use less memory after its restart."""
    topology = shape("three_nodes_three_zones", net_ticktime_s)
    title = "The configuration changes in a rolling restart"
    result = rolled(play, title, topology, queue_type, scale, waiting=True, **HOW["graceful"], configure=NEW_SETTINGS)
    limits = of_nodes(curves(result.run.metrics, "memory_limit"))
    assert sorted(limits) == sorted(topology.node_names)
    for node, limit in limits.items():
        assert limit.values[-1] < limit.values[0], f"{node} still has its old watermark"


def test_throughout(queue_type: str, endurance_min: int, scale: float, net_ticktime_s: int, play: Play) -> None:
    """One rolling restart follows another; each takes about a minute."""
    topology = shape("three_nodes_three_zones", net_ticktime_s)
    title = f"Rolling restarts for {endurance_min} min"
    rolled(play, title, topology, queue_type, scale, waiting=True, rounds=endurance_min, **HOW["graceful"])
