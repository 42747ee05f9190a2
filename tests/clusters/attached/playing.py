"""Scenarios on clusters that are there already, and what becomes of each step."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.journal import Journal, journal_file
from rabbitmq_resilience.extensions.attached.on_clusters import fitted
from rabbitmq_resilience.history.events import FaultEvent
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.workload.workload_model import Workload
from tests.run_scenarios import run_validated

PROVEN = ["injecting", "injected", "proven", "healing", "healed", "heal_proven"]
#: Nobody measures how fast a machine is on which much else runs.
RECOVERED_WITHIN_S = 120


def played(
    schedule: Sequence[dict[str, Any]], file: Path, folder: Path, topology: str = "three_nodes_three_zones"
) -> Result:
    """Nothing of others may have changed."""
    scenario = fitted(
        Scenario.model_validate(
            {
                "title": "On machines of others",
                "topology": topology,
                "workload": Workload(queues=2, publishers=2, consumers=2, rate_per_s=50),
                "phases": Phases(steady_s=2, recovery_s=RECOVERED_WITHIN_S, settled_s=3),
                "schedule": schedule,
                "invariants": Invariants.model_validate(
                    {"no_loss": {}, "order": {}, "recovery": {"within_s": RECOVERED_WITHIN_S}}
                ),
            }
        ),
        file,
    )
    with closing(Attachment(load(file))) as attachment, ClusterPool(attachment.form, keeps=False) as pool:
        testbed = RunContext(pool, folder, io.StringIO(), driver="attached", require=attachment.require)
        result = run_validated(scenario, testbed)
        pool.close()
        assert attachment.others_changed() == []
    return result


def played_and_proven(schedule: Sequence[dict[str, Any]], file: Path, folder: Path, **fields: str) -> Result:
    """Each step was in effect, and healed; no promise was broken; nothing is left."""
    result = played(schedule, file, folder, **fields)
    untrue = {name: found for name, found in result.document["invariants"].items() if found["verdict"] != "VALID"}
    states: dict[int, list[str]] = defaultdict(list)
    details = []
    for event in result.run.events():
        if isinstance(event, FaultEvent):
            states[event.step].append(event.state)
            details.append(f"{event.step} {event.state}: {event.detail}")
    assert dict(states) == dict.fromkeys(range(len(schedule)), PROVEN), details
    assert result.verdict == "VALID", untrue
    assert unhealed(file) == []
    return result


def unhealed(file: Path) -> list[str]:
    """The acts that stand in the journal."""
    return [row["act"] for row in Journal(journal_file(load(file).stated.cluster)).unhealed()]
