"""How long the last confirms are waited for: longer than the invariants of the scenario let them stay away."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.runner.run import LAST_CONFIRMS_WITHIN_S, last_confirms_within_s
from rabbitmq_resilience.scenario.model import Invariants, Scenario
from rabbitmq_resilience.workload.workload_model import Workload


def waited_s(invariants: dict[str, Any], **load: Any) -> float:
    """Return the wait of a scenario in a cluster of three nodes."""
    scenario = Scenario(
        title="A queue may be slow",
        topology=topology_catalogue.load("three_nodes_three_zones"),
        workload=Workload(queues=1, rate_per_s=100, **load),
        invariants=Invariants.model_validate(invariants),
    )
    return last_confirms_within_s(scenario) - LAST_CONFIRMS_WITHIN_S


@pytest.mark.parametrize("confirm_timeout_s", [10, 30])
def test_as_long_as_availability_allows(confirm_timeout_s: float) -> None:
    """Net ticks of 5 s, the time for one node in vain and an election, and the grace."""
    in_vain_s = 5 + confirm_timeout_s
    assert waited_s({"availability": {"grace_s": 2}}, confirm_timeout_s=confirm_timeout_s) == 1.25 * 5 + in_vain_s + 2
    assert waited_s({"availability": {"stall_s_max": 3, "grace_s": 2}}, confirm_timeout_s=confirm_timeout_s) == 5


def test_no_longer_without_such_a_bound() -> None:
    assert waited_s({"no_loss": {}}) == 0
