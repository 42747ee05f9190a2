"""When a fault begins and how long it lasts: the fields that every step of a schedule has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from faults.conditions import When
from topologies.fittings import NONE, Fittings
from topologies.spec import Link, Spec, Topology
from workloads.spec import Workload

Seconds = Annotated[float, Field(ge=0, le=86_400)]


class Step(Spec):
    """What a step touches and what is wrong with its targets is nothing, where a fault does not say otherwise (see
    ``faults.fault.Fault``).

    ``at_s`` counts from the end of the steady phase; ``when`` waits for a condition instead."""

    at_s: Seconds | None = None
    when: When | None = None
    for_s: Annotated[float, Field(gt=0, le=86_400)]

    @model_validator(mode="after")
    def _one_beginning(self) -> Self:
        if (self.at_s is None) == (self.when is None):
            raise ValueError("a step begins either at a time (at_s: 5) or when: something is true; give one of them")
        return self

    @property
    def ends_s(self) -> float | None:
        """When a timed step ends; None for one that waits for a condition."""
        return None if self.at_s is None else self.at_s + self.for_s

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:  # noqa: ARG002
        return {}

    def touches_links(self, topology: Topology) -> frozenset[Link]:  # noqa: ARG002
        return frozenset()

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def fittings(self, topology: Topology) -> Fittings:  # noqa: ARG002
        return NONE

    def touches_packets(self, topology: Topology) -> frozenset[Link]:  # noqa: ARG002
        return frozenset()

    def touches_processes(self, topology: Topology) -> frozenset[str]:  # noqa: ARG002
        return frozenset()
