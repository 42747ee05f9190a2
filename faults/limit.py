"""Brokers get less of their machine: a part of a CPU, a limit of memory, as where a neighbour takes the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from faults.fault import Arena, Effect, Proof, left_over, on_each
from faults.packets import in_containers
from faults.step import Step
from faults.targets import Resolver, node_problems
from topologies.cluster import Resources
from topologies.spec import Topology
from workloads.spec import Workload

FREE_AGAIN_WITHIN_S = 20.0
#: What engines demand at least.
MEMORY_MIN_BYTES = 6 * 2**20
CPUS_MIN = 0.01


class Limit(Step):
    """``cpus``: so many CPU-seconds a second. ``memory_bytes``: a process that needs more is killed by the kernel, and
    a node that ended so is started again when the limit is lifted."""

    fault: Literal["limit"] = "limit"
    node: str
    cpus: Annotated[float, Field(ge=CPUS_MIN, le=1024)] | None = None
    memory_bytes: Annotated[int, Field(ge=MEMORY_MIN_BYTES)] | None = None

    acts_on: ClassVar[str] = "containers"

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.cpus is None and self.memory_bytes is None:
            raise ValueError("says nothing to limit; give cpus: 0.2, or memory_bytes: 200000000, or both")
        return self

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        return node_problems(self.node, topology, workload)

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> LimitInjection:  # noqa: ARG002
        return LimitInjection(arena, resolver.nodes(self.node), self.cpus, self.memory_bytes)


@dataclass
class LimitInjection:
    arena: Arena
    nodes: tuple[str, ...]
    cpus: float | None
    memory_bytes: int | None
    _before: dict[str, Resources] = field(default_factory=dict, init=False)

    @property
    def effect(self) -> Effect:
        """Nothing is away for sure."""
        return Effect()

    def inject(self) -> None:
        cluster = in_containers(self.arena.cluster)
        for node in self.nodes:
            self._before[node] = cluster.resources(node)
            cluster.limit(node, cpus=self.cpus, memory_bytes=self.memory_bytes)

    def heal(self) -> None:
        cluster = in_containers(self.arena.cluster)

        def free(node: str) -> None:
            cluster.limit(node, cpus=None, memory_bytes=None)
            if cluster.process(node) == "gone":
                cluster.start(node)

        on_each(self._before, free)

    def prove(self, *, timeout_s: float) -> Proof:
        """Each node had to wait for its CPU, and the kernel has its limit of memory; or it was killed for it."""
        told: dict[str, str] = {}

        def unproven() -> list[str]:
            lacking = []
            for node in self.nodes:
                complaint, told[node] = self._look(node)
                lacking += [f"{node} {complaint}"] if complaint else []
            return lacking

        still = left_over(unproven, timeout_s=timeout_s, what="limits to be reached")
        return Proof(not still, "; ".join(still or told.values()))

    def prove_healed(self) -> Proof:
        """Each process runs, and has as much memory as before."""
        cluster = in_containers(self.arena.cluster)

        def limited() -> list[str]:
            away = [f"{node} is {cluster.process(node)}" for node in self.nodes if cluster.process(node) != "running"]
            return away or [f"{node} is still limited" for node in self.nodes if not cluster.resources(node).unlimited]

        still = left_over(limited, timeout_s=FREE_AGAIN_WITHIN_S, what="limits to be lifted")
        return Proof(not still, "; ".join(still) or f"{', '.join(self.nodes)} has no limit")

    def _look(self, node: str) -> tuple[str, str]:
        """What is not seen yet on the node, and what is."""
        cluster = in_containers(self.arena.cluster)
        if cluster.process(node) == "gone":
            return ("", f"{node} was killed") if self.memory_bytes is not None else ("has ended", "")
        now, complaints, told = cluster.resources(node), [], []
        waited_s = now.waited_s - self._before[node].waited_s
        if self.cpus is not None:
            told.append(f"{node} waited {waited_s:.1f} s for its CPU")
            complaints += [] if waited_s > 0 else [f"needs no more than {self.cpus:g} CPUs, and never waited for more"]
        if self.memory_bytes is not None:
            told.append(f"{node} has {now.memory_used_bytes:,} of {now.memory_bytes:,} bytes")
            fits = now.memory_bytes <= self.memory_bytes
            complaints += [] if fits else [f"may still have {now.memory_bytes} bytes"]
        return " and ".join(complaints), ", ".join(told)
