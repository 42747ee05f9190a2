"""What is said before a run of the time left for throughput, next to what its checker finds in a literal history."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rabbitmq_resilience.checkers.throughput import Throughput
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.scenario.notes import notes
from rabbitmq_resilience.scenario.settled_time import without_settled_window
from rabbitmq_resilience.workload.workload_model import Workload
from suites.partitions import long_cut_s, partition_scenario, shape, workload
from tests.invariants.literal import (
    FIVE,
    THREE,
    apart,
    cluster,
    fault,
    history,
    load,
    node_states,
    phases,
    publish,
    queues,
)
from tests.messages import Messages

NET_TICKTIME_S = 4
STEADY_S = 10.0
NO_WINDOW = "no window was settled long enough"


def scenario(nodes: str, *steps: Any, settled_s: float, timeout_s: float = 10, **throughput: float) -> Scenario:
    return Scenario(
        title="A zone is cut off",
        topology=topology_catalogue.load(nodes).model_copy(update={"net_ticktime_s": NET_TICKTIME_S}),
        workload=Workload(queues=1, publishers=1, consumers=1, rate_per_s=10, confirm_timeout_s=timeout_s),
        phases=Phases(steady_s=STEADY_S, recovery_s=60, settled_s=settled_s),
        schedule=steps,
        invariants=Invariants.model_validate({"no_loss": {}, "throughput": throughput}),
    )


def recorded(played: Scenario, *, timeout_s: float) -> Any:
    """The history of a run in which the broker is not disturbed at all, so that only the steps leave no time."""
    nodes = FIVE if len(played.topology.nodes) == len(FIVE) else THREE
    chaos_s, settled_s = played.chaos_s, played.settled_s
    ends = {"recovery": STEADY_S + chaos_s, "drain": STEADY_S + chaos_s + settled_s}
    events: list[Any] = [cluster(nodes, version="4.3.6", net_ticktime_s=NET_TICKTIME_S), queues("q1", members=nodes)]
    events += phases(steady=0, chaos=STEADY_S, **ends, end=ends["drain"] + 1)
    for number, step in enumerate(played.schedule):
        begins_s = STEADY_S + (step.at_s or 0)
        what: dict[str, Any] = {"cut": apart(["c1"], [node for node in nodes if node != "c1"])}
        if isinstance(step, Kill):
            what = {"name": "kill", "down": ["c1"]}
        events += fault(begins_s, begins_s + step.for_s, step=number, **what)
    sent = [publish(n, n) for n in range(round(ends["drain"]))]
    seen = node_states(nodes=nodes, end_s=ends["drain"])
    return history(sent, (), [*events, load(0, 1, confirm_timeout_s=timeout_s), seen])


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.generated) for n in range(2, 30))])
def test_it_is_said_where_the_checker_finds_no_window(seed: int) -> None:
    """In drawn schedules, until each was said and not said a few times."""
    chance, counts = random.Random(seed), {True: 0, False: 0}  # noqa: S311 - drawn cases
    while min(counts.values()) < 4:
        steps, at_s = [], float(chance.choice([0, 1, 3, 8]))
        for _ in range(chance.choice([1, 1, 2])):
            for_s = float(chance.choice([3, 8, 15, 21, 26, 31, 33, 36, 45]))
            kinds: list[Any] = [Partition(at_s=at_s, for_s=for_s, between=("zone:c", "rest"))]
            kinds.append(Kill(at_s=at_s, for_s=for_s, node="c1"))
            steps.append(chance.choice(kinds))
            at_s += for_s + chance.choice([1, 6, 20, 30])
        timeout_s = chance.choice([5.0, 10.0])
        throughput = {"window_s": chance.choice([2.5, 5.0]), "grace_s": chance.choice([0.0, 4.0, 20.3])}
        settled_s = throughput["window_s"] + chance.choice([0, 1, 3, 30])
        nodes = chance.choice(["three_nodes_three_zones", "five_nodes_three_zones"])
        drawn = scenario(nodes, *steps, settled_s=settled_s, timeout_s=timeout_s, **throughput)
        finding = Throughput(**throughput).check(recorded(drawn, timeout_s=timeout_s))
        said = bool(without_settled_window(drawn))
        is_found = finding.summary == NO_WINDOW
        assert said == is_found, (drawn.schedule, throughput, settled_s, timeout_s, nodes, finding)
        counts[said] += 1


def test_it_is_a_note_with_what_to_change(message: Messages) -> None:
    cut = Kill(at_s=1, for_s=34, node="c1")
    short = scenario("five_nodes_three_zones", cut, settled_s=5, window_s=5, grace_s=20)
    (note,) = notes(short)
    message(note)
    assert not list(notes(scenario("five_nodes_three_zones", cut, settled_s=26, window_s=5, grace_s=20)))
    assert not list(notes(scenario("five_nodes_three_zones", cut, settled_s=5, window_s=5, grace_s=20, timeout_s=5)))


@pytest.mark.parametrize("name", [n for n in topology_catalogue.names() if n != "one_node"])
def test_long_cuts_of_the_suites_leave_time_for_it(name: str) -> None:
    topology = shape(name, 5)
    cut = Partition(at_s=1, for_s=long_cut_s(topology), between=(topology.node_names[-1], "rest"))
    assert without_settled_window(partition_scenario("A node is cut off", topology, workload("quorum"), cut)) == ""
