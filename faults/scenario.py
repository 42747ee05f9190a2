"""A scenario: topology, workload, phases, schedule, invariants, seed. Everything that is played is one of these."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, create_model, model_validator

from faults.catalogue import AnyFault
from faults.conditions import Setting
from faults.packets import collision
from faults.targets import TargetError, check_target
from invariants.catalogue import INVARIANTS
from invariants.order import Order
from invariants.verdict import InvariantSpec, Verdict
from topologies import catalogue
from topologies.drivers import DRIVERS
from topologies.fittings import NONE, Fittings
from topologies.spec import Link, Spec, Topology
from workloads.load import share
from workloads.queues import queue_names
from workloads.spec import Workload

#: How long the chaos phase lasts at most where a step waits for a condition and nothing else is said.
CONDITION_PATIENCE_S = 120.0

#: Where in a scenario something is wrong, as in YAML: ``("schedule", 1, "at_s")``.
Place = tuple[str | int, ...]


def _specifiers(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"{text!r} is no range of versions; write it as '>=3.8,<4.3'") from error
    return text


def _regular_expression(text: str) -> str:
    try:
        re.compile(text, re.DOTALL)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


VersionRange = Annotated[str, AfterValidator(_specifiers)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Phases(Spec):
    """How long each phase lasts. ``chaos_s`` is by default as long as the schedule and the variable parts of the load;
    recovery and drain end as soon as they are complete, their numbers are the longest they may take. ``settled_s`` is
    how long the load goes on after recovery, so that what follows the faults can be judged too."""

    steady_s: Seconds = 10
    chaos_s: Seconds | None = None
    recovery_s: Seconds = 60
    settled_s: Annotated[float, Field(ge=0, le=86_400)] = 5
    drain_s: Seconds = 60


class Expectation(Spec):
    """The verdict that versions in ``broker`` are known to give, with the invariant that they break, and those that may
    break ``also`` as a consequence: in each run, or, without ``always``, in some of them while the others are VALID.
    ``log`` is a regular expression that some broker's log must match then (``.`` takes line ends too): the trace of the
    known cause, so that no other cause passes for it."""

    broker: VersionRange
    verdict: Verdict
    invariant: str | None = None
    also: tuple[str, ...] = ()
    reference: str | None = None
    always: bool = True
    log: Annotated[str, AfterValidator(_regular_expression)] | None = None

    @model_validator(mode="after")
    def _consequences(self) -> Self:
        if self.also and self.invariant is None:
            raise ValueError("also names what breaks in consequence: say in invariant of what")
        return self

    def __str__(self) -> str:
        by = f" by {self.invariant}" if self.invariant else ""
        return f"{self.verdict}{by}{'' if self.always else ' in some runs'}"


if TYPE_CHECKING:

    class Invariants(Spec):
        """The chosen invariants with their bounds; one optional field each, see ``invariants.catalogue``."""

else:
    Invariants = create_model(
        "Invariants", __base__=Spec, **{name: (checker | None, None) for name, checker in INVARIANTS.items()}
    )


def _named_topology(value: Any) -> Any:
    """A topology is written as its name in the catalogue or as the mapping itself."""
    if not isinstance(value, str):
        return value
    try:
        return catalogue.load(value)
    except (catalogue.UnknownTopologyError, catalogue.BadTopologyError) as error:
        raise ValueError(str(error)) from error


class Scenario(Spec):
    """One run, whole. The same scenario with the same seed makes the same choices. With ``metrics`` a Prometheus server
    scrapes the brokers meanwhile, and what it saw is kept. ``reference`` is where an incident is described in public,
    ``what`` says in a few words what happened."""

    version: Literal[1] = 1
    title: Annotated[str, Field(min_length=1, max_length=200)]
    reference: str | None = None
    what: Annotated[str, Field(max_length=2000)] | None = None
    broker: VersionRange = ""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    topology: Annotated[Topology, BeforeValidator(_named_topology)]
    workload: Workload = Workload()
    phases: Phases = Phases()
    metrics: bool = False
    schedule: tuple[AnyFault, ...] = ()
    invariants: Annotated[Invariants, PlainSerializer(lambda value: value.model_dump(mode="json", exclude_unset=True))]
    expect: tuple[Expectation, ...] = ()

    @property
    def chosen_invariants(self) -> Mapping[str, InvariantSpec]:
        return {name: value for name in INVARIANTS if (value := getattr(self.invariants, name)) is not None}

    @property
    def queue_names(self) -> tuple[str, ...]:
        return tuple(queue_names(self.workload))

    @property
    def chaos_s(self) -> float:
        """How long the chaos phase may last."""
        if self.phases.chaos_s is not None:
            return self.phases.chaos_s
        timed = [step.ends_s for step in self.schedule if step.ends_s is not None]
        waiting = [CONDITION_PATIENCE_S + step.for_s for step in self.schedule if step.when is not None]
        return max([*timed, *waiting, self.workload.variation_s])

    @property
    def touched_links(self) -> frozenset[Link]:
        """The links that need a proxy: those that the schedule may touch, in both directions."""
        touched = {link for step in self.schedule for link in step.touches_links(self.topology)}
        return frozenset(touched | {link.back for link in touched})

    @property
    def fittings(self) -> Fittings:
        """What its steps act on that nodes must be given before they start."""
        return functools.reduce(or_, (step.fittings(self.topology) for step in self.schedule), NONE)

    @property
    def needs(self) -> frozenset[str]:
        """What its steps need beside the cluster, see ``faults.fault.Fault``."""
        return frozenset(need for step in self.schedule for need in step.needs)

    def expected(self, broker_version: str) -> tuple[Expectation, ...]:
        """What that version may end as, any of them; VALID where nothing is stated."""
        return tuple(e for e in self.expect if _within(broker_version, e.broker)) or (VALID_EXPECTED,)

    def applies_to(self, broker_version: str) -> bool:
        return _within(broker_version, self.broker)

    def with_topology(self, **changes: Any) -> Self:
        return self.model_copy(update={"topology": self.topology.model_copy(update=changes)})


VALID_EXPECTED = Expectation(broker="", verdict=Verdict.VALID)


def _within(version: str, versions: str) -> bool:
    return SpecifierSet(versions).contains(Version(version), prereleases=True)


def problems(scenario: Scenario, driver: str | None) -> Iterator[tuple[Place, str]]:
    """What no type can say: targets against the topology, steps against each other, the phases and the driver (None
    where it is not to be played)."""
    topology, queues = scenario.topology, scenario.queue_names
    yield from _workload_problems(scenario)
    yield from _load_problems(scenario)
    for i, step in enumerate(scenario.schedule):
        if driver is not None and step.acts_on not in DRIVERS[driver].offers:
            yield ("schedule", i, "fault"), _not_offered(step, driver)
        for field, text in step.problems(topology, scenario.workload).items():
            yield ("schedule", i, field), text
        if step.when is not None and (text_or_none := step.when.problem(Setting(topology, queues, earlier=i))):
            yield ("schedule", i, "when"), text_or_none
        if scenario.phases.chaos_s is not None and (step.ends_s or step.for_s) > scenario.phases.chaos_s:
            yield (
                ("schedule", i, "for_s"),
                f"the step ends at {step.ends_s or step.for_s:g} s, past the end of the schedule (phases.chaos_s is "
                f"{scenario.phases.chaos_s:g}); end it earlier, or make chaos_s longer",
            )
    if not any(True for _ in _workload_problems(scenario)):
        yield from _collisions(scenario)
    yield from _verdict_problems(scenario)


def _not_offered(step: AnyFault, driver: str) -> str:
    text = f"{step.fault} acts on {step.acts_on}, and the driver {driver} offers only"
    others = [f"--driver {name}" for name, other in DRIVERS.items() if step.acts_on in other.offers]
    hint = f"; {' or '.join(others)} does" if others else ""
    return f"{text} {', '.join(sorted(DRIVERS[driver].offers))}{hint}"


def _verdict_problems(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """What could only end UNKNOWN, or not as expected."""
    workload = scenario.workload
    if not scenario.chosen_invariants:
        yield ("invariants",), f"nothing is demanded, so nothing could be told; there are {', '.join(INVARIANTS)}"
    order = scenario.chosen_invariants.get("order")
    if isinstance(order, Order) and order.shared_queues == "named" and workload.consumers > workload.queues:
        text = f"order is promised where a queue has one consumer, and there are {workload.queues} queues"
        yield ("workload", "consumers"), f"{text}; have no more consumers, or do not demand order"
    demanded = [name for name in ("availability", "throughput") if name in scenario.chosen_invariants]
    unserved = sorted(_without_publisher(scenario)) if demanded else []
    if unserved:
        text = f"{' and '.join(demanded)} cannot be judged while nobody publishes to {', '.join(unserved[:5])}"
        yield ("workload", "publishers"), f"{text}; have more publishers, so that each queue keeps one on every side"
    if "metadata" in scenario.chosen_invariants and workload.declare_every_s is None:
        text = "the invariant metadata is demanded, and nothing would be declared; say how often, such as 0.5"
        yield ("workload", "declare_every_s"), text
    measured = [name for name, chosen in scenario.chosen_invariants.items() if chosen.needs_metrics]
    if measured and not scenario.metrics:
        text = f"{' and '.join(measured)} cannot be judged without what the brokers say of themselves"
        yield ("metrics",), f"{text}; write metrics: true"
    chosen = ", ".join(scenario.chosen_invariants)
    for i, expectation in enumerate(scenario.expect):
        named = {"invariant": [expectation.invariant] if expectation.invariant else [], "also": expectation.also}
        for field, names in named.items():
            for name in (n for n in names if n not in scenario.chosen_invariants):
                yield ("expect", i, field), f"{name!r} is not demanded here; invariants: {chosen}"


def _without_publisher(scenario: Scenario) -> set[str]:
    """The queues whose publishers are all taken away by one step, or may all sit in one zone."""
    workload, nodes = scenario.workload, scenario.topology.nodes
    by_queue: dict[str, list[int]] = {name: [] for name in queue_names(workload)}
    names = list(by_queue)
    for publisher in range(workload.publishers):
        for queue in share(publisher, workload.publishers, len(names)):
            by_queue[names[queue]].append(publisher)
    sane = [step for step in scenario.schedule if not step.problems(scenario.topology, workload)]
    killed = [step.touches_processes(scenario.topology) | _cut_off(step, scenario) for step in sane]
    unserved = {
        name for name, mine in by_queue.items() for taken in killed if {f"publisher:{i}" for i in mine} <= taken
    }
    if workload.reconnect == "own_zone":
        zones = {name: {nodes[i % len(nodes)].zone for i in mine} for name, mine in by_queue.items()}
        unserved |= {name for name, there in zones.items() if there != set(scenario.topology.zones)}
    return unserved


def _cut_off(step: AnyFault, scenario: Scenario) -> set[str]:
    """The clients that the step cuts off from every node, for longer than it takes them to come back."""
    links = step.touches_links(scenario.topology) if step.fault != "latency" and step.for_s > 1 else frozenset()
    clients = {link.client for link in links} - {None}
    nodes = scenario.topology.node_names
    return {client for client in clients if client and all(Link(client, node) in links for node in nodes)}


def _workload_problems(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    topology, workload = scenario.topology, scenario.workload
    size = len(topology.nodes)
    for i, target in enumerate(workload.leaders_on):
        try:
            check_target(target, topology, ())
            if target not in topology.node_names and not target.startswith("zone:"):
                raise TargetError(f"{target!r}: leaders are placed on nodes by name, or on a zone (zone:a)")
        except TargetError as error:
            yield ("workload", "leaders_on", i), str(error)
    if workload.group_size is not None and workload.group_size > size:
        yield (
            ("workload", "group_size"),
            f"{workload.group_size} members need as many nodes; {topology.name} has {size}",
        )
    copies = workload.mirroring.ha_params if workload.mirroring else None
    if copies is not None and copies > size:
        yield ("workload", "mirroring", "ha_params"), f"{copies} copies need as many nodes; {topology.name} has {size}"


def _load_problems(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """What varies for longer than there is time for it, or is too slow to be told from what stands still."""
    workload, phases = scenario.workload, scenario.phases
    for field in ("variable_rate", "variable_processing"):
        length_s = sum(step.for_s for step in getattr(workload, field))
        if length_s > scenario.chaos_s:
            text = f"the steps last {length_s:g} s, past the end of the schedule (phases.chaos_s is {phases.chaos_s:g})"
            yield ("workload", field), f"{text}; shorten them, or make chaos_s longer"
    acknowledged_s = workload.processing_ms / 1000 * workload.ack_every
    if acknowledged_s > phases.recovery_s:
        text = (
            f"a consumer acknowledges {workload.ack_every} messages every {acknowledged_s:g} s, too seldom to be seen"
        )
        yield ("workload", "processing_ms"), f"{text} within phases.recovery_s ({phases.recovery_s:g}); lower ack_every"


def _collisions(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Two steps that take the same node away, or may slow the same link, at the same time."""
    topology = scenario.topology
    sane = [(i, s) for i, s in enumerate(scenario.schedule) if not s.problems(topology, scenario.workload)]
    for (i, step), (j, other) in itertools.combinations(sane, 2):
        timed = step.at_s is not None and other.at_s is not None
        apart = timed and not _overlap(step, other)
        field = "at_s" if other.at_s is not None else "when"
        if text := collision(step, other, topology, apart=apart):
            yield ("schedule", j, field), f"step {i} {text}"
        if apart:
            continue
        taken = step.touches_processes(topology) & other.touches_processes(topology)
        if timed and taken:  # a step that waits looks for itself whether its node is there
            yield ("schedule", j, field), f"step {i} has taken {', '.join(sorted(taken))} away at that time already"
        if step.fault == other.fault == "alarm" and step.resource == other.resource:
            yield ("schedule", j, field), f"step {i} raises the alarm of {step.resource} at that time already, or may"
        slow = step.fault == other.fault == "latency"
        links = step.touches_links(topology) & other.touches_links(topology) if slow else ()
        if links:
            named = ", ".join(map(str, sorted(links)[:3]))
            when = "at that time already" if timed else "too, and may do so at the same time"
            yield ("schedule", j, field), f"step {i} slows {named} {when}"


def _overlap(one: AnyFault, other: AnyFault) -> bool:
    return bool(one.at_s < other.ends_s and other.at_s < one.ends_s)  # type: ignore[operator]
