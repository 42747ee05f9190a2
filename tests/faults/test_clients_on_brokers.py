"""Clients cut from their brokers in each way there is: heartbeats do their work, and no confirmed message is lost."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.events import FaultEvent, PhaseEvent, WorkerEvent
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.disconnect import Disconnect
from rabbitmq_resilience.nemesis.flapping import Flapping
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.workload.workload_model import Workload
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.brokers

SCHEDULE = (
    Partition(at_s=1, for_s=10, between=("publisher:0", "all"), one_way=True),  # what it sends gets nowhere
    Partition(at_s=12, for_s=13, between=("all", "publisher:0"), one_way=True),  # it gets no answer
    Disconnect(at_s=26, for_s=0.004, between=("publisher:0", "all")),
    Disconnect(at_s=28, for_s=1, between=("publisher:0", "consumer:0", "all")),
    Partition(at_s=31, for_s=9, between=("consumer:0", "all")),
    Flapping(at_s=42, for_s=6, between=("publisher:0", "all"), period_s=1.2),
    Partition(at_s=49, for_s=0.4, between=("publisher:0", "consumer:0", "all")),
)


def lost_connections(run: RunDirectory, worker: str) -> list[float]:
    """When, in seconds from the beginning of the chaos phase."""
    events = list(run.events())
    begun_us = next(e.t_us for e in events if isinstance(e, PhaseEvent) and e.phase == "chaos")
    lost = (e for e in events if isinstance(e, WorkerEvent) and (e.worker, e.event) == (worker, "connection_lost"))
    return [(event.t_us - begun_us) / 1e6 for event in lost]


def test_clients_are_cut_from_their_brokers(tmp_path: Path) -> None:
    scenario = Scenario(
        title="Clients are cut from their brokers",
        seed=3,
        topology=topology_catalogue.load("three_nodes_three_zones"),
        workload=Workload(queues=2, publishers=2, consumers=2, rate_per_s=400, heartbeat_s=2),
        phases=Phases(steady_s=2, recovery_s=60, settled_s=5),
        schedule=SCHEDULE,
        invariants=Invariants.model_validate({"no_loss": {}, "order": {}, "recovery": {"within_s": 60}}),
    )
    with ClusterPool() as pool:
        result = run_validated(scenario, RunContext(pool, tmp_path, io.StringIO()))
        assert pool.acquire(scenario.topology, scenario.touched_links).links.clean

    proofs = defaultdict(list)
    for event in result.run.events():
        if isinstance(event, FaultEvent) and "proven" in event.state:
            proofs[event.step].append((event.state, event.detail))
    for step in range(len(SCHEDULE)):
        assert {state for state, _ in proofs[step]} == {"proven", "heal_proven"}, (step, proofs[step])
    assert result.verdict is Verdict.VALID, result.story()
    lost_s = lost_connections(result.run, "publisher-0")
    assert [at_s for at_s in lost_s if 1 < at_s < 12], "heartbeats end a connection that is half open"
    assert [at_s for at_s in lost_s if 12 < at_s < 26], "the other way round, pika takes its time"
    assert [at_s for at_s in lost_s if 26 <= at_s < 28], "before a heartbeat would tell"
    assert [at_s for at_s in lost_connections(result.run, "consumer-0") if 31 < at_s < 41]
    assert not lost_connections(result.run, "publisher-1"), "the others were let alone"
