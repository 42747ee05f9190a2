"""Find what is wrong with a scenario beyond its types: parts that do not fit together, or that no driver can play."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rabbitmq_resilience.checkers.checker_catalogue import INVARIANTS
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.model.yaml_files import Location
from rabbitmq_resilience.nemesis.combining import Combination
from rabbitmq_resilience.nemesis.conditions import Setting
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.scenario.application_problems import application_problems
from rabbitmq_resilience.scenario.expectations import excuse_problems
from rabbitmq_resilience.scenario.generated_problems import generated_problems, placement_problems
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.broker.configuration import is_in_owned_family
from rabbitmq_resilience.sut.drivers import DRIVERS, FORMING
from rabbitmq_resilience.tools.locations import OPTION
from rabbitmq_resilience.workload.kinds import APPLICATION, GENERATED, not_judged_of

#: What finds the problems of a load, by its kind.
PROBLEMS_OF: Mapping[str, Callable[[Scenario, str | None], Iterator[tuple[Location, str]]]] = {
    GENERATED: generated_problems,
    APPLICATION: application_problems,
}


def problems(scenario: Scenario, driver: str | None) -> Iterator[tuple[Location, str]]:
    """Yield what types cannot check: targets against the topology, steps against each other, the phases and the driver.
    ``driver`` is None if the scenario was played already. Then its record shows what could be seen."""
    topology, queues = scenario.topology, scenario.queue_names
    yield from PROBLEMS_OF[scenario.workload.kind](scenario, driver)
    yield from _setting_problems(scenario)
    yield from _balancer_problems(scenario, driver)
    yield from _size_problems(scenario, driver)
    for i, step in enumerate(scenario.schedule):
        if driver is not None and step.ability not in DRIVERS[driver].offers:
            yield ("schedule", i, "fault"), _not_offered(step, driver)
        for field, text in step.problems(topology, scenario.workload).items():
            yield ("schedule", i, field), text
        if not step.problems(topology, scenario.workload) and step.footprint(topology).packets & topology.network_links:
            text = f"{step.fault} acts on packets, which must not go through the proxies of the topology's network"
            yield ("schedule", i, "fault"), f"{text}; name links that are not slow, or a topology without network"
        if step.when is not None and (text_or_none := step.when.problem(Setting(topology, queues, earlier=i))):
            yield ("schedule", i, "when"), text_or_none
        if scenario.phases.chaos_s is not None and (step.ends_s or step.for_s) > scenario.phases.chaos_s:
            yield (
                ("schedule", i, "for_s"),
                f"the step ends at {step.ends_s or step.for_s:g} s, past the end of the schedule (phases.chaos_s is "
                f"{scenario.phases.chaos_s:g}); end it earlier, or make chaos_s longer",
            )
    if driver is not None and not any(True for _ in placement_problems(scenario)):
        yield from combination_problems(scenario)
    yield from _verdict_problems(scenario)
    if driver is not None:
        yield from excuse_problems(scenario.expect, scenario.chosen_invariants)
    if scenario.tries > 1 and not any(expected.verdict is Verdict.INVALID for expected in scenario.expect):
        text = f"tries: {scenario.tries} would hide a broken promise; it is only for an INVALID that is expected"
        yield ("tries",), f"{text}: leave it out, or state that in expect"


def _not_offered(step: AnyFault, driver: str) -> str:
    text = f"{step.fault} acts on {step.ability}, and the driver {driver} offers only"
    others = [f"{OPTION}driver {name}" for name, other in FORMING.items() if step.ability in other.offers]
    if not others:
        others = [f"{OPTION}cluster FILE, of existing brokers in pods,"]
    hint = f"; {' or '.join(others)} does" if others else ""
    return f"{text} {', '.join(sorted(DRIVERS[driver].offers))}{hint}"


def _verdict_problems(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    """Yield what could only end UNKNOWN, or not as expected."""
    if not scenario.chosen_invariants:
        yield ("invariants",), f"nothing is demanded, so nothing could be judged; there are {', '.join(INVARIANTS)}"
    kind = scenario.workload.kind
    for name, kinds in not_judged_of(scenario.workload).items():
        if name in scenario.chosen_invariants:
            text = f"{name} is not judged of kind: {kind}; leave it out, or write kind: {' or '.join(kinds)}"
            yield ("invariants", name), text
    measured = [name for name, chosen in scenario.chosen_invariants.items() if chosen.needs_metrics]
    if measured and not scenario.metrics:
        text = f"{' and '.join(measured)} cannot be judged without the metrics of the brokers"
        yield ("metrics",), f"{text}; write metrics: true"
    chosen = ", ".join(scenario.chosen_invariants)
    for i, expectation in enumerate(scenario.expect):
        named = {
            "invariant": [expectation.invariant] if expectation.invariant else [],
            "invariants_also": expectation.invariants_also,
        }
        for field, names in named.items():
            for name in (n for n in names if n not in scenario.chosen_invariants):
                yield ("expect", i, field), f"{name!r} is not demanded here; invariants: {chosen}"


def _setting_problems(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    """Yield lines of rabbitmq.conf that the harness writes itself."""
    instead = {
        "cluster_partition_handling": "partition_handling",
        "net_ticktime": "net_ticktime_s",
        "collect_statistics_interval": "statistics_interval_s",
    }
    for name in scenario.topology.settings:
        field = next((field for key, field in instead.items() if name == key or name.startswith(f"{key}.")), None)
        if field is not None:
            yield ("topology", "settings", name), f"is set by topology.{field}; write it there"
        elif is_in_owned_family(name):
            yield ("topology", "settings", name), "is the harness's own, which must know its ports and logs"


def _balancer_problems(scenario: Scenario, driver: str | None) -> Iterator[tuple[Location, str]]:
    if not scenario.topology.balancers:
        return
    if driver is not None and "balancers" not in DRIVERS[driver].offers:
        others = [f"{OPTION}driver {name}" for name, other in FORMING.items() if "balancers" in other.offers]
        text = f"the driver {driver} has no load balancers; take {' or '.join(others)}"
        yield ("topology", "balancers"), f"{text}, or a topology without them"


def _size_problems(scenario: Scenario, driver: str | None) -> Iterator[tuple[Location, str]]:
    """Yield a broker size if the driver cannot enforce it: only containers can."""
    if scenario.topology.broker_size is not None and driver is not None and "containers" not in DRIVERS[driver].offers:
        text = f"the driver {driver} holds brokers to no size; take {OPTION}driver docker, or leave it out"
        yield ("topology", "broker_size"), text


def combination_problems(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    """Yield pairs of steps that do not go together, such as two that take the same node away at the same time."""
    sane = scenario.sane_steps
    for trouble in Combination([*sane.values()], scenario.topology, [*sane]).troubles():
        yield ("schedule", trouble.step, trouble.field), trouble.text
