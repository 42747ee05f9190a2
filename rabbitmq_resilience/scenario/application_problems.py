"""Find what is wrong with a scenario whose workload is the user's own application."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.model.yaml_files import Location
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.tools.locations import OPTION
from rabbitmq_resilience.workload.application_model import ApplicationWorkload, missing_programs


def application_problems(scenario: Scenario, driver: str | None) -> Iterator[tuple[Location, str]]:
    """Yield a topology that a tap cannot stand in front of; and programs that are not there, unless the scenario was
    played already (``driver`` is None)."""
    workload = scenario.workload
    assert isinstance(workload, ApplicationWorkload)
    order = scenario.chosen_invariants.get("order")
    if isinstance(order, Order) and order.shared_queues == "judged":
        text = "brokers promise no order among several consumers, and an application is held to promises; leave it out"
        yield ("invariants", "order", "shared_queues"), text
    if scenario.topology.balancers:
        text = "a tap leads to one broker, and a balancer chooses it; take a topology without them"
        yield ("topology", "balancers"), text
    without_engine = driver is not None and "containers" not in DRIVERS[driver].offers
    for index, process in enumerate(workload.processes if without_engine else ()):
        if process.image is not None:
            text = f"the driver {driver} runs no images; take {OPTION}driver docker, or run it by a command alone"
            yield ("workload", "processes", index, "image"), text
    for index, text in missing_programs(workload, Path()) if driver is not None else ():
        yield ("workload", "processes", index, "command"), text
