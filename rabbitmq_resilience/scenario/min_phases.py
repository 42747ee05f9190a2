"""Check that a scenario can come to a verdict: its phases must last as long as the bounds of its invariants need."""

from __future__ import annotations

from collections.abc import Iterator

from rabbitmq_resilience.checkers.recovery import WHOLE_S_MIN
from rabbitmq_resilience.model.yaml_files import Location
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.workload_model import Workload


def unjudgeable(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    """Yield the phases that are too short to judge what is demanded."""
    given = {**dict(scenario.phases), "settled_s": scenario.settled_s}
    for name, invariant in scenario.chosen_invariants.items():
        for phase, least_s in invariant.least_phases.items():
            if given[phase] < least_s:
                text = f"{name} cannot be judged in {given[phase]:g} s"
                yield ("phases", phase), f"{text}; write {least_s:g} or more, or lower the bounds of invariants.{name}"
    exclusive = isinstance(scenario.workload, Workload) and scenario.workload.exclusive
    if exclusive and "recovery" in scenario.chosen_invariants and given["settled_s"] < WHOLE_S_MIN:
        text = f"recovery cannot be judged in {given['settled_s']:g} s of exclusive queues, which go before the drain"
        yield ("phases", "settled_s"), f"{text}; write {WHOLE_S_MIN:g} or more"
