"""Which scenarios a cluster that is there already can play, and what it must not be asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rabbitmq_resilience.clusters.attached.cluster_file import KnownCluster, load
from rabbitmq_resilience.clusters.attached.permits import refusal, untreated
from rabbitmq_resilience.clusters.attached.shape import ShapeError
from rabbitmq_resilience.clusters.attached.shape import fitted as fitted_topology
from rabbitmq_resilience.clusters.attached.spec import ClusterFile
from rabbitmq_resilience.faults.packets import PacketStep
from rabbitmq_resilience.scenarios.at_once import most_at_once
from rabbitmq_resilience.scenarios.fault_file import FaultFileError
from rabbitmq_resilience.scenarios.model import Scenario
from rabbitmq_resilience.tools.yaml_files import Location, Problem


class NotPlayableError(Exception):
    """The cluster cannot play the scenario, and would not be asked to; the text says why."""


def fitted(scenario: Scenario, file: Path) -> Scenario:
    """The scenario with what the cluster has, such as its ``net_ticktime``. Raises NotPlayableError where the cluster
    is of another shape, or something is not offered or allowed; ClusterFileError."""
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
    """Raises FaultFileError with everything that is neither offered nor allowed; a scenario that needs a cluster of
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
    """Of a scenario whose topology fits: what would be done to the cluster that may not, or cannot."""
    for i, step in enumerate(scenario.schedule):
        for act, nodes in step.acts(scenario.topology).items():
            if text := refusal(stated, act, nodes):
                yield ("schedule", i, "fault"), text
        touched = sorted(step.may_act_on(scenario.topology) & {*scenario.topology.node_names})
        if touched and not step.acts(scenario.topology):
            text = f"the fault {step.fault} does not say what it does to {', '.join(touched)} (its method acts)"
            yield ("schedule", i, "fault"), f"{text}, so nothing in allow can permit it"
        if isinstance(step, PacketStep) and (text := untreated(stated, step.disturbance)):
            yield ("schedule", i, "fault"), text
    for act in sorted({act for step in scenario.schedule for act in step.acts(scenario.topology)}):
        together = most_at_once(scenario, {act})
        if together is not None and len(together.steps) > 1 and (text := refusal(stated, act, together.nodes)):
            *others, last = together.steps
            field = "at_s" if scenario.schedule[last].at_s is not None else "when"
            yield ("schedule", last, field), f"beside step {' and '.join(map(str, others))}, {text}"
    untold = [node.name for node in stated.nodes if node.prometheus is None]
    if scenario.metrics and untold:
        yield ("metrics",), f"the cluster file states no prometheus: of {', '.join(untold)}"


@cache
def known(file: Path) -> KnownCluster:
    """As it was read first."""
    return load(file)
