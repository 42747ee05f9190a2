"""Check which scenarios an attached cluster can play, and what the suite must not ask of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rabbitmq_resilience.extensions.attached.at_once import most_at_once
from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster, load
from rabbitmq_resilience.extensions.attached.cluster_model import ClusterFile
from rabbitmq_resilience.extensions.attached.fault_budget import FaultBudget
from rabbitmq_resilience.extensions.attached.shape import ShapeError
from rabbitmq_resilience.extensions.attached.shape import fitted as fitted_topology
from rabbitmq_resilience.model.errors import NotPlayableError
from rabbitmq_resilience.model.yaml_files import Location, Problem
from rabbitmq_resilience.nemesis.netem import Netem
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from rabbitmq_resilience.scenario.model import Scenario


def fitted(scenario: Scenario, file: Path) -> Scenario:
    """Return the scenario with the cluster's own values, such as its ``net_ticktime``.

    Raise NotPlayableError if the cluster has another shape, or does not offer or allow something. Raise
    ClusterFileError if its file is wrong."""
    stated = known(file).stated
    try:
        topology = fitted_topology(scenario.topology, stated)
    except ShapeError as error:
        raise NotPlayableError(f"another cluster than {file.name} describes is needed: {error}") from None
    found = scenario.on(topology)
    if refused := [text for _, text in refusals(found, stated)]:
        raise NotPlayableError(f"{file.name} does not let it be played: {'; '.join(refused)}")
    return found


def check(scenario: Scenario, file: Path, *, source: str) -> None:
    """Raise FaultFileError with everything that is not offered or not allowed. A scenario that needs a cluster of
    another shape is not judged here."""
    stated = known(file).stated
    try:
        topology = fitted_topology(scenario.topology, stated)
    except ShapeError:
        return
    refused = list(refusals(scenario.on(topology), stated))
    if refused:
        raise FaultFileError(source, [Problem(location, None, text) for location, text in refused])


def refusals(scenario: Scenario, stated: ClusterFile) -> Iterator[tuple[Location, str]]:
    """Yield what the scenario, whose topology fits, would do to the cluster although it may not or cannot."""
    budget = FaultBudget(stated)
    for i, (step, footprint) in enumerate(zip(scenario.schedule, scenario.footprints, strict=True)):
        for act, nodes in footprint.acts.items():
            if text := budget.refusal(act, nodes):
                yield ("schedule", i, "fault"), text
        touched = sorted(footprint.acted_on & {*scenario.topology.node_names})
        if touched and not footprint.acts:
            text = f"the fault {step.fault} does not say what it does to {', '.join(touched)} (acts of its footprint)"
            yield ("schedule", i, "fault"), f"{text}, so nothing in allow can permit it"
        if isinstance(step, Netem) and (text := budget.untreated(step.disturbance)):
            yield ("schedule", i, "fault"), text
    for act in sorted({act for step in scenario.footprints for act in step.acts}):
        together = most_at_once(scenario, {act})
        if together is not None and len(together.steps) > 1 and (text := budget.refusal(act, together.nodes)):
            *others, last = together.steps
            field = "at_s" if scenario.schedule[last].at_s is not None else "when"
            yield ("schedule", last, field), f"together with step {' and '.join(map(str, others))}, {text}"
    unscraped = [node.name for node in stated.nodes if node.prometheus is None]
    if scenario.metrics and unscraped:
        yield ("metrics",), f"the cluster file states no prometheus for {', '.join(unscraped)}"


@cache
def known(file: Path) -> KnownCluster:
    """Return the cluster as it was when first read."""
    return load(file)
