"""Messages of several sizes and priorities through a queue that has a backlog, in which the higher ones overtake."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.draws import Priorities
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.workload.mix import MESSAGE_BYTES_MAX, Mix
from rabbitmq_resilience.workload.workload_model import Workload
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.plays

PRIORITIES = (0, 0, 9)
SIZES = ((100, 150), (200_000, 40), (MESSAGE_BYTES_MAX, 2))
#: With this seed the first messages have one of each size.
SEED = 14
WORKLOAD = Workload.model_validate(
    {
        "queue_type": "classic",
        "rate_per_s": 100,
        "in_flight": 20,
        "prefetch": 5,
        "ack_every": 1,
        "processing_ms": 15,
        "message_sizes": [{"message_bytes": size, "weight": weight} for size, weight in SIZES],
        "priorities": PRIORITIES,
    }
)


def test_higher_ones_overtake_and_their_equals_do_not(tmp_path: Path) -> None:
    scenario = Scenario(
        title="Sizes and priorities",
        seed=SEED,
        topology=topology_catalogue.load("three_nodes_three_zones"),
        workload=WORKLOAD,
        phases=Phases(steady_s=4, recovery_s=60, settled_s=1, drain_s=120),
        invariants=Invariants.model_validate({"no_loss": {}, "order": {}}),
    )
    with ClusterPool() as pool:
        result = run_validated(scenario, RunContext(pool, tmp_path, io.StringIO()))
    assert result.verdict is Verdict.VALID, result.story()
    received = pa.Table.from_batches(result.run.deliveries())
    sequences = received.column("sequence").to_numpy()
    assert all(received.column("intact").to_pylist())
    drawn = Priorities(PRIORITIES).of(0, sequences)
    overtaking = [n for n, sequence in enumerate(sequences) if drawn[n] == 9 and (sequences[n:] < sequence).any()]
    assert overtaking, "the queue was never so full that one had a lower one before it"
    mix = Mix(SIZES, PRIORITIES, SEED)
    assert {mix.kinds[kind].message_bytes for kind in mix.of(0, 0, len(set(sequences)))} == {n for n, _ in SIZES}
