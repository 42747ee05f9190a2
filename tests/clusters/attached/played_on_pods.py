"""Scenarios that are played on brokers in pods."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_command import describe
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.journal import Journal, journal_file
from rabbitmq_resilience.extensions.attached.on_clusters import fitted
from rabbitmq_resilience.history.events import FaultEvent
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.workload_model import Workload
from tests.run_scenarios import run_validated

PROVEN = ["injecting", "injected", "proven", "healing", "healed", "heal_proven"]


def await_whole(file: Path) -> None:
    wait_until(lambda: describe([str(file)]) == 0, timeout_s=120, what="the cluster to be whole", poll_s=2.0)


def played(file: Path, folder: Path, schedule: list[dict[str, Any]]) -> Result:
    invariants = {"no_loss": {}, "order": {}, "recovery": {"within_s": 90}}
    scenario = fitted(
        Scenario.model_validate(
            {
                "title": "On brokers in pods",
                "topology": "three_nodes_three_zones",
                "workload": Workload(queues=2, publishers=2, consumers=2, rate_per_s=100),
                "phases": Phases(steady_s=5, recovery_s=90, settled_s=3),
                "schedule": schedule,
                "invariants": Invariants.model_validate(invariants),
            }
        ),
        file,
    )
    with closing(Attachment(load(file))) as attachment, ClusterPool(attachment.form, keeps=False) as pool:
        result = run_validated(scenario, RunContext(pool, folder, io.StringIO(), driver="attached"))
        pool.close()
        assert attachment.others_changed() == []
    assert Journal(journal_file(load(file).stated.cluster)).unhealed() == []
    return result


def untrue(result: Result, steps: int) -> Mapping[str, Any]:
    states = defaultdict(list)
    for event in result.run.events():
        if isinstance(event, FaultEvent):
            states[event.step].append(event.state)
    assert dict(states) == dict.fromkeys(range(steps), PROVEN), result.document["faults"]
    return {name: found for name, found in result.document["invariants"].items() if found["verdict"] != "VALID"}
