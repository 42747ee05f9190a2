"""Find what is wrong with a scenario whose workload is the user's own application."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rabbitmq_resilience.checkers.checker_catalogue import INVARIANTS, OF_APPLICATIONS
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.model.yaml_files import Location
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.application_model import ApplicationWorkload, missing_programs

#: What cannot be judged of an application: it needs to know how messages are made.
_OF_GENERATED = frozenset({"metadata", "dead_letters", "single_active_consumer", "flow", "held_back"})


def application_problems(scenario: Scenario, driver: str | None) -> Iterator[tuple[Location, str]]:
    """Yield what is demanded of an application and cannot be judged, or the other way round; and programs that are not
    there, unless the scenario was played already (``driver`` is None)."""
    workload = scenario.workload
    if not isinstance(workload, ApplicationWorkload):
        for name in sorted(OF_APPLICATIONS & scenario.chosen_invariants.keys()):
            text = f"{name} is judged of the user's own program; write workload: {{kind: application, ...}}"
            yield ("invariants", name), text
        return
    for name in sorted(_OF_GENERATED & scenario.chosen_invariants.keys()):
        known = ", ".join(known for known in INVARIANTS if known not in _OF_GENERATED)
        yield ("invariants", name), f"{name} cannot be judged of an application; there are {known}"
    order = scenario.chosen_invariants.get("order")
    if isinstance(order, Order) and order.shared_queues == "judged":
        text = "brokers promise no order among several consumers, and an application is held to promises; leave it out"
        yield ("invariants", "order", "shared_queues"), text
    if scenario.topology.balancers:
        text = "a tap leads to one broker, and a balancer chooses it; take a topology without them"
        yield ("topology", "balancers"), text
    for index, text in missing_programs(workload, Path()) if driver is not None else ():
        yield ("workload", "processes", index, "command"), text
