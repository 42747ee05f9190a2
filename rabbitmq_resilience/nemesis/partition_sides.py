"""The base of faults between sides: which links they cut, and which sides may be written."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, model_validator

from rabbitmq_resilience.model.links import Link, balancers_of
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import (
    REST,
    Resolver,
    TargetError,
    check_target,
    check_ways,
    is_fixed,
    links_between,
    names_no_node,
    possible_links,
    size_of,
)
from rabbitmq_resilience.nemesis.two_forms import LINKS_SCHEMA, as_between, either_of
from rabbitmq_resilience.workload.queues import queue_names
from rabbitmq_resilience.workload.workload_model import Workload


class SidesStep(ScheduledFault):
    """``between`` names two or more sides: targets, clients, balancers, and at most one ``rest`` (of the nodes)."""

    between: Annotated[tuple[str, ...], Field(min_length=2, max_length=7)]

    model_config = ConfigDict(json_schema_extra=partial(either_of, own="between", other="links", more=LINKS_SCHEMA))

    @model_validator(mode="before")
    @classmethod
    def _two_forms(cls, stated: Any) -> Any:
        return as_between(stated, directed="one_way" in cls.model_fields)

    acts_on: ClassVar[str] = "links"
    #: The action on the links between brokers.
    act: ClassVar[str] = "cut"

    def acts(self, topology: Topology) -> Mapping[str, int]:
        """Return the action, at the nodes of all sides except the largest. If a node is on no side, it connects all of
        them, so one node is enough."""
        if len(self._sides_of_nodes) < 2:
            return {}
        sizes = [size_of(target, topology) for target in self._sides_of_nodes if target != REST]
        rest = max(0, len(topology.node_names) - sum(sizes))
        if REST in self.between:
            sizes.append(rest)
            rest = 0
        return {self.act: 1 if rest else max(1, sum(sizes) - max(sizes))}

    @property
    def unsettles(self) -> bool:
        return len(self._sides_of_nodes) > 1

    def leaves_majority(self, topology: Topology) -> bool:
        """Return whether the largest side, with the nodes on no side, still sees more than half of all nodes."""
        nodes = len(topology.node_names)
        sizes = [size_of(target, topology) for target in self._sides_of_nodes if target != REST]
        rest = nodes - sum(sizes)
        largest = max([*sizes, rest]) if REST in self.between else max(sizes, default=0) + rest
        return 2 * largest > nodes

    @property
    def _sides_of_nodes(self) -> list[str]:
        return [target for target in self.between if not names_no_node(target)]

    @property
    def targets(self) -> tuple[str, ...]:
        return self.between

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        try:
            for target in self.between:
                check_target(target, topology, queue_names(workload), rest=True, clients_of=workload)
            if len(set(self.between)) < len(self.between):
                raise TargetError(f"a side is named twice in {list(self.between)}")
            if not self.touches_links(topology):
                raise TargetError(f"there is no link between {' and '.join(self.between)}: name a node on some side")
            check_ways(self.touches_links(topology), topology)
        except TargetError as error:
            return {"between": str(error)}
        return {}

    def claims(self, topology: Topology) -> frozenset[str]:
        """Return the balancers, because a fault on another link of a balancer looks the same to the clients and brokers
        behind it."""
        return balancers_of(self.touches_links(topology))

    def touches_links(self, topology: Topology) -> frozenset[Link]:
        if not all(target == REST or is_fixed(target) for target in self.between):
            return possible_links(self.between, topology)
        return links_between(Resolver.without_chance(topology).sides(self.between))


class DirectedSidesStep(SidesStep):
    """With ``one_way``, only what the first of two sides sends to the second is lost."""

    one_way: bool = False

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        if self.one_way and len(self.between) != 2:
            text = f"one way is from one side to another, and between names {len(self.between)}; name two"
            return {"one_way": text, **super().problems(topology, workload)}
        return super().problems(topology, workload)
