"""What the faults between sides have in common: which links they cut, and what may be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from faults.step import Step
from faults.targets import REST, Resolver, TargetError, check_target, is_fixed, links_between, possible_links
from topologies.spec import Link, Topology
from workloads.queues import queue_names
from workloads.spec import Workload


class SidesStep(Step):
    """``between`` names two or more sides: targets, clients, and at most one ``rest`` (of the nodes)."""

    between: Annotated[tuple[str, ...], Field(min_length=2, max_length=7)]

    acts_on: ClassVar[str] = "links"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        try:
            for target in self.between:
                check_target(target, topology, queue_names(workload), rest=True, clients_of=workload)
            if len(set(self.between)) < len(self.between):
                raise TargetError(f"a side is named twice in {list(self.between)}")
            if not self.touches_links(topology):
                raise TargetError(f"there is no link between {' and '.join(self.between)}: name a node on some side")
        except TargetError as error:
            return {"between": str(error)}
        return {}

    def touches_links(self, topology: Topology) -> frozenset[Link]:
        if not all(target == REST or is_fixed(target) for target in self.between):
            return possible_links(self.between, topology)
        return links_between(Resolver.without_chance(topology).sides(self.between))

    def touches_processes(self, topology: Topology) -> frozenset[str]:  # noqa: ARG002 - it acts on no process
        return frozenset()


class DirectedSidesStep(SidesStep):
    """``one_way``: of two sides, only what the first sends to the second is lost."""

    one_way: bool = False

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        if self.one_way and len(self.between) != 2:
            text = f"one way is from one side to another, and between names {len(self.between)}; name two"
            return {"one_way": text, **super().problems(topology, workload)}
        return super().problems(topology, workload)
