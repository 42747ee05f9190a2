"""A scenario: topology, workload, phases, schedule, invariants, seed. Each run plays one scenario."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    create_model,
    model_validator,
)

from rabbitmq_resilience.checkers.checker_catalogue import INVARIANTS
from rabbitmq_resilience.checkers.verdict import InvariantSpec
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.actions import ACT
from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.node_options import NodeOptions
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.former_faults import with_present_steps
from rabbitmq_resilience.nemesis.scheduled_fault import LASTS_S_MAX, TICKS_NOT_KNOWN_S, ends_by_s
from rabbitmq_resilience.scenario.expectations import VALID_EXPECTED, Expectation, VersionRange, is_within
from rabbitmq_resilience.sut.broker.plugins import PLUGIN
from rabbitmq_resilience.workload.kinds import AnyWorkload
from rabbitmq_resilience.workload.workload_model import Workload

#: How long the load goes on after recovery if no invariant needs more.
SETTLED_S = 5.0

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Phases(Spec):
    """How long each phase lasts. ``chaos_s`` is by default as long as the schedule and the variable parts of the load.
    Recovery and drain end as soon as they are complete; their numbers are the longest that they may take (idle
    connections have a second more for each 20). ``settled_s`` is how long the load goes on after recovery, so that the
    time after the faults can be judged too. Its default is 5 s, or what an invariant needs (throughput: its
    ``grace_s``, ``window_s`` and 1 s)."""

    steady_s: Seconds = 10
    chaos_s: Seconds | None = None
    recovery_s: Seconds = 60
    settled_s: Annotated[float, Field(ge=0, le=86_400)] | None = None
    drain_s: Seconds = 60


if TYPE_CHECKING:

    class Invariants(Spec):
        """The chosen invariants with their bounds. Each has one optional field, see
        ``invariants.topology_catalogue``."""

else:
    Invariants = create_model(
        "Invariants", __base__=Spec, **{name: (checker | None, None) for name, checker in INVARIANTS.items()}
    )


def _named_topology(value: Any, info: ValidationInfo) -> Any:
    """Return the topology for its name in the catalogue, or for the path of its file, relative to the ``folder`` of the
    validation's context. Return the value itself if it is a mapping."""
    if not isinstance(value, str):
        return value
    try:
        if value.endswith((".yaml", ".yml")):
            return topology_catalogue.read(((info.context or {}).get("folder", Path.cwd()) / value).resolve())
        return topology_catalogue.load(value)
    except (topology_catalogue.UnknownTopologyError, topology_catalogue.BadTopologyError) as error:
        raise ValueError(str(error)) from error


class Scenario(Spec):
    """One whole run. The same scenario with the same seed makes the same choices. With ``metrics``, a Prometheus server
    scrapes the brokers during the run, and its data is kept. It evaluates the alerting rules in the files ``rules``
    each second, unless a group has another interval. ``reference`` is where an incident is described in public, and
    ``what`` says in a few words what happened. ``name`` is shared by scenarios that differ only in topology, partition
    handling, queue type or version, which have fields of their own.

    ``markers`` are those of pytest (``-m``). ``tries`` is how often the scenario is played at most until it ends as
    expected. It is for an expected INVALID that shows only if a fault meets the load at work. A run that breaks another
    promise ends the tries."""

    version: Literal[1] = 1
    title: Annotated[str, Field(min_length=1, max_length=200)]
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    markers: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], ...] = ()
    tries: Annotated[int, Field(ge=1, le=100)] = 1
    reference: str | None = None
    what: Annotated[str, Field(max_length=2000)] | None = None
    broker: VersionRange = ""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    topology: Annotated[Topology, BeforeValidator(_named_topology)]
    workload: AnyWorkload = Workload()
    phases: Phases = Phases()
    metrics: bool = False
    rules: Path | tuple[Path, ...] = ()
    schedule: tuple[AnyFault, ...] = ()
    invariants: Annotated[Invariants, PlainSerializer(lambda value: value.model_dump(mode="json", exclude_unset=True))]
    expect: tuple[Expectation, ...] = ()

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Return the scenario that a mapping states, with its steps in the present or in the former spelling."""
        return super().model_validate(with_present_steps(obj), **options)

    @property
    def chosen_invariants(self) -> Mapping[str, InvariantSpec]:
        stated = {name: value for name in INVARIANTS if (value := getattr(self.invariants, name)) is not None}
        return {**{name: INVARIANTS[name]() for name in self.workload.always_judged}, **stated}

    @property
    def rule_files(self) -> tuple[Path, ...]:
        return (self.rules,) if isinstance(self.rules, Path) else self.rules

    @property
    def queue_names(self) -> Sequence[str] | None:
        """Return the names of all queues; None if they are not known before the run."""
        return self.workload.queue_names

    @property
    def generated(self) -> Workload:
        """Return the load, which this suite generates. Raise TypeError if it is of another kind."""
        if not isinstance(self.workload, Workload):
            raise TypeError(f"the load of {self.title} is of the kind {self.workload.kind}, and none that is generated")
        return self.workload

    @property
    def chaos_s(self) -> float:
        """Return how long the chaos phase may last."""
        if self.phases.chaos_s is not None:
            return self.phases.chaos_s
        return max([*ends_by_s(self.schedule), self.workload.variation_s])

    @property
    def settled_s(self) -> float:
        """Return how long the load goes on after recovery."""
        needed_s = max([SETTLED_S, *(invariant.settled_s for invariant in self.chosen_invariants.values())])
        return needed_s if self.phases.settled_s is None else self.phases.settled_s

    @property
    def footprints(self) -> tuple[Footprint, ...]:
        """Return what each step of the schedule may touch."""
        return tuple(step.footprint(self.topology) for step in self.schedule)

    @property
    def sane_steps(self) -> Mapping[int, AnyFault]:
        """Return the steps without problems of their own, by their place in the schedule."""
        steps = enumerate(self.schedule)
        return {place: step for place, step in steps if not step.problems(self.topology, self.workload)}

    @property
    def touched_links(self) -> frozenset[Link]:
        """Return the links that need a proxy: those that the schedule may touch, in both directions, and those that the
        network slows."""
        return frozenset[Link]().union(*(step.proxied for step in self.footprints), self.topology.network_links)

    @property
    def equipment(self) -> NodeOptions:
        """Return what nodes must be given before they start, because steps act on it or the load uses it."""
        used = NodeOptions(plugins=self.workload.plugins)
        return functools.reduce(or_, (step.node_options for step in self.footprints), used)

    @property
    def needs(self) -> frozenset[str]:
        """Return what the steps, the topology and the load need in addition to brokers, or of the brokers; see
        ``nemesis.footprint.Footprint``."""
        plugins = {PLUGIN + name for name in self.equipment.plugins}
        of_steps = {need for step in self.footprints for need in step.needs}
        return self.topology.needs | self.workload.needs | plugins | of_steps

    @property
    def acts(self) -> frozenset[str]:
        """Return what the steps do to brokers, as needs: an attached cluster may lack the tools for one of the acts."""
        return frozenset(ACT + act for step in self.footprints for act in step.acts)

    @property
    def takes_the_machine(self) -> bool:
        """Return whether no other scenario may be played on the machine meanwhile."""
        return any(step.takes_the_machine for step in self.schedule)

    def expected(self, broker_version: str) -> tuple[Expectation, ...]:
        """Return the expectations for that version, of which one or several may come true; VALID if none is stated."""
        mine = (e for e in self.expect if not e.queue_types or self.workload.queue_type in e.queue_types)
        return tuple(e for e in mine if is_within(broker_version, e.broker)) or (VALID_EXPECTED,)

    def applies_to(self, broker_version: str) -> bool:
        return is_within(broker_version, self.broker)

    def with_topology(self, **changes: Any) -> Scenario:
        return self.on(self.topology.model_copy(update=changes))

    def on(self, topology: Topology) -> Scenario:
        """Return the scenario on another topology. Steps with ``for_ticks`` last for as many ticks of the new
        topology."""
        schedule = in_ticks(self.schedule, topology.net_ticktime_s)
        return self.model_copy(update={"topology": topology, "schedule": schedule})

    @model_validator(mode="after")
    def _ticks_are_known(self) -> Self:
        schedule = in_ticks(self.schedule, self.topology.net_ticktime_s)
        for number, (stated, step) in enumerate(zip(self.schedule, schedule, strict=True)):
            if stated.for_s not in {TICKS_NOT_KNOWN_S, step.for_s}:
                text = f"for_s is {stated.for_s:g}, and for_ticks: {step.for_ticks:g} is {step.for_s:g} s here"
                raise ValueError(f"schedule[{number}]: {text}; write one of them")
        object.__setattr__(self, "schedule", schedule)  # nothing else refers to the scenario yet
        return self


def in_ticks(schedule: Sequence[AnyFault], tick_s: float) -> tuple[AnyFault, ...]:
    """Return the steps with ``for_s`` set to what their ``for_ticks`` mean."""
    found = []
    for step in schedule:
        if step.for_ticks is None:
            found.append(step)
            continue
        found.append(step.model_copy(update={"for_s": min(step.for_ticks * tick_s, LASTS_S_MAX)}))
    return tuple(found)
