"""Every fault on real brokers: injected, proven, healed, proven again, also where they overlap."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path

import pytest

from rabbitmq_resilience.history.events import FaultEvent
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.latency import Latency
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.nemesis.pause import Pause
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.known_defects import known_hangs
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.workload.workload_model import Workload
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.core

PROVEN = ["injecting", "injected", "proven", "healing", "healed", "heal_proven"]


def test_overlapping_faults_are_proven_and_healed(tmp_path: Path) -> None:
    """A node dies in the middle of a cut of its zone, links are slow meanwhile, one is cut by two steps at once; then
    the leaders' node dies, and while it is away for its peers, a follower is shut down."""
    schedule = (
        Partition(at_s=0.5, for_s=6, between=("zone:c", "rest")),
        Partition(at_s=5.5, for_s=4, between=("c1", "a1", "b1")),
        Latency(at_s=0, for_s=11, links="a1 <-> b1", latency_ms=60, jitter_ms=10),
        Kill(at_s=12, for_s=4, node="a1"),
        Stop(when={"node_is": {"node": "a1", "state": "down"}}, for_s=6, node="zone:c"),
        Pause(at_s=37, for_s=3, node="one"),
    )
    demanded: dict[str, dict[str, int]] = {"no_loss": {}, "order": {}, "recovery": {"within_s": 60}}
    workload = Workload(queues=2, publishers=2, consumers=2, rate_per_s=200, leaders_on=("a1",))
    scenario = Scenario(
        title="Overlapping faults",
        seed=7,
        topology=topology_catalogue.load("three_nodes_three_zones"),
        workload=workload,
        phases=Phases(steady_s=2, chaos_s=43, recovery_s=90, settled_s=5),
        schedule=schedule,
        invariants=Invariants.model_validate(demanded),
        expect=known_hangs(workload, demanded=list(demanded)),  # a node that comes back on 3.10 may hang, and says so
    )
    with ClusterPool() as pool:
        result = run_validated(scenario, RunContext(pool, tmp_path, io.StringIO()))
        assert pool.acquire(scenario.topology, scenario.touched_links).links.clean

    states = defaultdict(list)
    for event in result.run.events():
        if isinstance(event, FaultEvent):
            states[event.step].append(event.state)
    untrue = {name: found for name, found in result.document["invariants"].items() if found["verdict"] != "VALID"}
    assert dict(states) == dict.fromkeys(range(len(schedule)), PROVEN), untrue
    assert result.document["as_expected"], untrue
