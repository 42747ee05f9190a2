"""List what a scenario would do to an attached cluster, without doing it: every act, its time and its machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.extensions.attached.at_once import most_at_once
from rabbitmq_resilience.extensions.attached.cluster_model import ClusterFile
from rabbitmq_resilience.extensions.attached.on_clusters import known
from rabbitmq_resilience.extensions.attached.shape import matched
from rabbitmq_resilience.extensions.attached.watchdog import MARGIN_S
from rabbitmq_resilience.model.actions import ACTIONS, HEALING_TEXT, backends_of
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.flapping import Flapping
from rabbitmq_resilience.nemesis.partition_sides import DirectedSidesStep
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.application_model import ApplicationWorkload
from rabbitmq_resilience.workload.workload_model import Workload


def plan(scenario: Scenario, file: Path) -> Iterator[str]:
    """Yield lines for people, for a scenario that fits the cluster of that file (``on_clusters.fitted``)."""
    stated = known(file).stated
    names = {node: one.name for node, one in matched(scenario.topology, stated).items()}
    where = stated.virtual_host or "a virtual host of its own, which is removed at the end"
    yield f"  load: {_load(scenario.workload, where)}"
    for number, step in enumerate(scenario.schedule):
        yield f"  step {number}, {_when(step)}, {_description(step)}:"
        acts = step.footprint(scenario.topology).acts
        for act, most in acts.items():
            yield f"    {act}: {ACTIONS[act].text}; at up to {most} node{'s' if most != 1 else ''} at once"
        yield from (f"      {line}" for line in _places(step, scenario, stated, names) if acts)
        if not acts:
            yield "    nothing is done to brokers: only to our own clients, their links and our queues"
    together = most_at_once(scenario, ACTIONS.keys())
    if together is not None and len(together.steps) > 1:
        numbers = " and ".join(map(str, together.steps))
        at_once = f"up to {together.nodes} of {len(names)} nodes, by steps {numbers}"
        yield f"  at once: {at_once}; allow: counts each act alone"
    yield f"  lasts {_length(scenario)}"


def _load(load: Workload | ApplicationWorkload, where: str) -> str:
    if isinstance(load, ApplicationWorkload):
        return f"the programs {', '.join(map(str, load.processes))} in {where}"
    queues = f"{load.queues} {load.queue_type} queue{'s' if load.queues != 1 else ''}"
    rate = "as fast as it goes" if load.rate_per_s is None else f"{load.rate_per_s}/s"
    return f"{counted(load.publishers, 'publisher')} to {queues} in {where}, {rate}"


def _description(step: AnyFault) -> str:
    fields = step.model_dump(mode="json", exclude={"fault", "at_s", "when", "for_s"}, exclude_defaults=True)
    return " ".join([step.fault, ", ".join(f"{name}: {value}" for name, value in fields.items())]).rstrip()


def _when(step: AnyFault) -> str:
    if step.at_s is not None:
        return f"{step.at_s:g} s after chaos begins, for {step.for_s:g} s"
    assert step.when is not None, "a step has a time or a condition"
    return f"once {step.when}, for {step.for_s:g} s"


def _places(step: AnyFault, scenario: Scenario, stated: ClusterFile, names: dict[str, str]) -> Iterator[str]:
    """Yield the machines. If a target is drawn or found only during the run, yield all that it may mean."""
    footprint = step.footprint(scenario.topology)
    if all("api" in backends_of(act) for act in footprint.acts):
        yield "by the management API"
        return
    ends = _ends(step, scenario, stated)
    for node in sorted(footprint.acted_on & names.keys()):
        yield f"{names[node]}, by {stated.offers.reached_by(names[node])}; {ends}"
    touched = footprint.links | footprint.packets
    if isinstance(step, DirectedSidesStep):
        touched = step.cut_links(scenario.topology)
    links = {link for link in touched if link.client is None}
    sent = "delay" in footprint.acts and stated.offers.kubernetes is None  # pods delay what they receive
    for node in sorted({link.source if sent else link.target for link in links}):
        peers = {link.target for link in links if link.source == node} if sent else _sources(links, node)
        packets = f"packets {'to' if sent else 'from'} {', '.join(names[peer] for peer in sorted(peers))}"
        yield f"{names[node]}, by {stated.offers.reached_by(names[node])}: {packets}; {ends}"


def _ends(step: AnyFault, scenario: Scenario, stated: ClusterFile) -> str:
    actions = [ACTIONS[verb] for verb in step.footprint(scenario.topology).acts]
    since = "is done" if any(action.takes_its_time for action in actions) else "began"
    if isinstance(step, Flapping):
        since = "cut its links last"
    by_watchdog = f"ends by itself {MARGIN_S + step.for_s:g} s after it {since}, at the latest"
    return ", ".join(dict.fromkeys(HEALING_TEXT.get(stated.offers.ends(each), by_watchdog) for each in actions))


def _sources(links: set[Link], target: str) -> set[str]:
    return {link.source for link in links if link.target == target}


def _length(scenario: Scenario) -> str:
    phases = scenario.phases
    chaos_s = scenario.chaos_s
    return (
        f"{phases.steady_s:g} s steady, {chaos_s:g} s chaos, up to {phases.recovery_s:g} s recovery and "
        f"{phases.drain_s:g} s until the queues are empty"
    )
