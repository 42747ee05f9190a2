"""Find what is wrong with a scenario whose workload is the user's own application."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rabbitmq_resilience.model.yaml_files import Location
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.application_model import ApplicationWorkload, missing_programs


def application_problems(scenario: Scenario, driver: str | None) -> Iterator[tuple[Location, str]]:
    """Yield a topology that a tap cannot stand in front of; and programs that are not there, unless the scenario was
    played already (``driver`` is None)."""
    workload = scenario.workload
    assert isinstance(workload, ApplicationWorkload)
    if scenario.topology.balancers:
        text = "a tap leads to one broker, and a balancer chooses it; take a topology without them"
        yield ("topology", "balancers"), text
    for index, text in missing_programs(workload, Path()) if driver is not None else ():
        yield ("workload", "processes", index, "command"), text
