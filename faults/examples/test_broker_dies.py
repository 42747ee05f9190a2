"""A scenario in Python, which can be repeated with other values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rabbitmq_resilience import Result, Scenario, load_topology

TOPOLOGY = load_topology(Path(__file__).parent / "topologies" / "three_zones.yaml")


@pytest.mark.parametrize("for_s", [3, 8])
def test_the_leaders_broker_dies(for_s: float, play: Callable[[Scenario], Result]) -> None:
    scenario = Scenario.model_validate(
        {
            "title": f"The broker of a leader dies for {for_s} s",
            "topology": TOPOLOGY,
            "workload": {"queue_type": "quorum", "queues": 2, "publishers": 2, "consumers": 2, "rate_per_s": 300},
            "phases": {"steady_s": 5, "recovery_s": 60, "settled_s": 5},
            "schedule": [{"at_s": 1, "for_s": for_s, "fault": "kill", "node": "leader:q1"}],
            "invariants": {"no_loss": {}, "order": {}, "availability": {}, "recovery": {"within_s": 60}},
        }
    )
    result = play(scenario)
    assert result.document["invariants"]["recovery"]["numbers"]["recovered_after_s"] < 60
