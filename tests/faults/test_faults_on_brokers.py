"""Every fault on real brokers: injected, proven, healed, proven again, also where they overlap."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path

import pytest

from faults.kill import Kill
from faults.latency import Latency
from faults.partition import Partition
from faults.pause import Pause
from faults.scenario import Invariants, Phases, Scenario
from faults.stop import Stop
from invariants.verdict import Verdict
from suites.scenario import Bench, run_scenario
from topologies import catalogue
from topologies.pool import ClusterPool
from workloads.spec import Workload

pytestmark = pytest.mark.broker

PROVEN = ["injecting", "injected", "proven", "healing", "healed", "heal_proven"]


def test_overlapping_faults_are_proven_and_healed(tmp_path: Path) -> None:
    """A node dies in the middle of a cut of its zone, links are slow meanwhile, one is cut by two steps at once; then
    the leader freezes, and while it is away for its peers, a follower is shut down."""
    schedule = (
        Partition(at_s=0.5, for_s=3, between=("zone:c", "rest")),
        Partition(at_s=1.5, for_s=4, between=("c1", "a1", "b1")),
        Latency(at_s=0, for_s=7, links="a1 <-> b1", latency_ms=60, jitter_ms=10),
        Kill(at_s=9, for_s=4, node="leader:q1"),
        Stop(when={"node_is": {"node": "a1", "state": "down"}}, for_s=6, node="zone:c"),
        Pause(at_s=34, for_s=3, node="one"),
    )
    scenario = Scenario(
        title="Overlapping faults",
        seed=7,
        topology=catalogue.load("three_nodes_three_zones"),
        workload=Workload(queues=2, publishers=2, consumers=2, rate_per_s=200, leaders_on=("a1",)),
        phases=Phases(steady_s=2, chaos_s=40, recovery_s=90, settled_s=1),
        schedule=schedule,
        invariants=Invariants.model_validate({"no_loss": {}, "order": {}, "recovery": {"within_s": 60}}),
    )
    with ClusterPool() as pool:
        result = run_scenario(scenario, Bench(pool, tmp_path, io.StringIO()))
        assert pool.acquire(scenario.topology, scenario.touched_links).links.clean

    states = defaultdict(list)
    for event in result.run.events():
        if event["kind"] == "fault":
            states[event["step"]].append(event["state"])
    assert dict(states) == dict.fromkeys(range(len(schedule)), PROVEN)
    assert result.verdict is Verdict.VALID, result.document
