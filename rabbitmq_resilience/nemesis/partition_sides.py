"""The base of faults between sides: which links they cut, and which sides may be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, model_validator

from rabbitmq_resilience.model.links import Link, balancers_of
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.footprint import Footprint
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
from rabbitmq_resilience.workload.workload_base import WorkloadBase


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

    def footprint(self, topology: Topology) -> Footprint:
        """Return the links, and their balancers, because a fault on another link of a balancer looks the same to the
        clients and brokers behind it. The largest side still sees itself, and the nodes on no side."""
        links, sides = self._links(topology), [target for target in self.between if not names_no_node(target)]
        sizes = [size_of(target, topology) for target in sides if target != REST]
        rest = len(topology.node_names) - sum(sizes)
        together = max([*sizes, rest]) if REST in self.between else max(sizes, default=0) + rest
        return Footprint(
            targets=self.between,
            links=links,
            resources=balancers_of(links),
            acts={self.act: self._separated(sizes, rest)} if len(sides) > 1 else {},
            unsettles=len(sides) > 1,
            together=together,
        )

    def _separated(self, sizes: Sequence[int], rest: int) -> int:
        """Return how many nodes are outside the largest group whose members all reach each other: those of all sides
        except the largest. Nodes on no side reach all others."""
        if REST in self.between:
            sizes = [*sizes, max(0, rest)]
        return max(1, sum(sizes) - max(sizes))

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        try:
            for target in self.between:
                check_target(target, topology, workload.queue_names, rest=True, clients_of=workload)
            if len(set(self.between)) < len(self.between):
                raise TargetError(f"a side is named twice in {list(self.between)}")
            if not self._links(topology):
                raise TargetError(f"there is no link between {' and '.join(self.between)}: name a node on some side")
            check_ways(self._links(topology), topology)
        except TargetError as error:
            return {"between": str(error)}
        return {}

    def _links(self, topology: Topology, *, one_way: bool = False) -> frozenset[Link]:
        if not all(target == REST or is_fixed(target) for target in self.between):
            return possible_links(self.between, topology, one_way=one_way)
        return links_between(Resolver.without_chance(topology).sides(self.between), one_way=one_way)


class DirectedSidesStep(SidesStep):
    """With ``one_way``, only what the first of two sides sends to the second is lost."""

    one_way: bool = False

    def cut_links(self, topology: Topology) -> frozenset[Link]:
        """Return the links that are cut. The footprint has their ways back too, which probes need."""
        return self._links(topology, one_way=self.one_way)

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        if self.one_way and len(self.between) != 2:
            text = f"one way is from one side to another, and between names {len(self.between)}; name two"
            return {"one_way": text, **super().problems(topology, workload)}
        return super().problems(topology, workload)
