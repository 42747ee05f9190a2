"""Play scenarios that tests make in Python."""

from __future__ import annotations

from typing import Any

from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run import RunContext, run_scenario
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.validation import validated


def run_validated(scenario: Scenario, testbed: RunContext, **options: Any) -> Result:
    """Validate the scenario for the driver of ``testbed``, and play it."""
    return run_scenario(validated(scenario, driver=testbed.driver), testbed, **options)
