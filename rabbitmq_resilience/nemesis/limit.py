"""Limit what brokers get of their machine: part of a CPU, or a limit of memory, as if a neighbour took the rest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over, on_each
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.offered import offered
from rabbitmq_resilience.nemesis.processes import KILLED
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver, node_problems
from rabbitmq_resilience.sut.container_protocol import ResourceLimits, Resources
from rabbitmq_resilience.workload.workload_base import WorkloadBase

FREE_AGAIN_WITHIN_S = 20.0
#: The smallest limit that container engines accept.
MEMORY_MIN_BYTES = 6 * 2**20
CPUS_MIN = 0.01


class Limit(ScheduledFault):
    """``cpus`` is the number of CPU-seconds that the node gets in a second. ``memory_bytes`` limits its memory: the
    kernel kills a process that needs more, and a node that ended this way is started again when the limit is lifted.

    ``cpus`` is proven only if the node wants more: 450 messages/s took 0.2 to 0.3 CPUs, so 0.5 was no limit for it. An
    engine on control groups of version 1 refuses a ``memory_bytes`` below the memory in use, and the run is UNKNOWN."""

    fault: Literal["limit"] = "limit"
    node: str
    cpus: Annotated[float, Field(ge=CPUS_MIN, le=1024)] | None = None
    memory_bytes: Annotated[int, Field(ge=MEMORY_MIN_BYTES)] | None = None

    acts_on: ClassVar[str] = "containers"
    example: ClassVar[str] = "node: b1, cpus: 0.5"

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.cpus is None and self.memory_bytes is None:
            raise ValueError("there is nothing to limit; give cpus: 0.2, or memory_bytes: 200000000, or both")
        return self

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        return node_problems(self.node, topology, workload)

    def footprint(self, topology: Topology) -> Footprint:
        """Return the limits of the nodes, and their processes. These are sure if memory is limited, as a node that
        lacks memory may end."""
        of_nodes = Footprint.of_nodes(self.node, topology)
        resources = frozenset(f"the limits of {node}" for node in of_nodes.possible_processes)
        processes = frozenset[str]() if self.memory_bytes is None else of_nodes.processes
        return replace(of_nodes, resources=resources, processes=processes)

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> LimitInjection:  # noqa: ARG002 - one form for all
        return LimitInjection(context, resolver.nodes(self.node), self.cpus, self.memory_bytes)


@dataclass
class LimitInjection:
    context: FaultContext
    nodes: tuple[str, ...]
    cpus: float | None
    memory_bytes: int | None
    _before: dict[str, Resources] = field(default_factory=dict, init=False)
    _began_s: float = field(default=0.0, init=False)

    @property
    def effect(self) -> Effect:
        """Return the nodes as starved; if their memory is limited, one may end, too."""
        if self.memory_bytes is None:
            return Effect(nodes_starved=self.nodes)
        return Effect(nodes_starved=self.nodes, nodes_down=self.nodes, nodes_may_serve=True)

    def inject(self) -> None:
        limits = offered(self.context.cluster, ResourceLimits)
        self._began_s = time.monotonic()
        for node in self.nodes:
            self._before[node] = limits.resources(node)
            if not self._before[node].unlimited:
                raise ClusterError(f"{node} was limited before the fault began")
            limits.limit(node, cpus=self.cpus, memory_bytes=self.memory_bytes)

    def heal(self) -> None:
        cluster, limits = self.context.cluster, offered(self.context.cluster, ResourceLimits)

        def free(node: str) -> None:
            limits.limit(node, cpus=None, memory_bytes=None)
            if cluster.process(node) == "gone":
                cluster.start(node)

        on_each(self._before, free)

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that each node waited for its CPU and has its limit of memory, or was killed because of it."""
        seen: dict[str, str] = {}

        def unproven() -> list[str]:
            lacking = []
            for node in self.nodes:
                complaint, seen[node] = self._look(node)
                lacking += [f"{node} {complaint}"] if complaint else []
            return lacking

        still = left_over(unproven, timeout_s=timeout_s, what="limits to be reached")
        return Proof(not still, "; ".join(still or seen.values()))

    def prove_healed(self) -> Proof:
        """Return a proof that each process runs without a limit, as before."""
        cluster, limits = self.context.cluster, offered(self.context.cluster, ResourceLimits)

        def limited() -> list[str]:
            away = [f"{node} is {cluster.process(node)}" for node in self.nodes if cluster.process(node) != "running"]
            return away or [f"{node} is still limited" for node in self.nodes if not limits.resources(node).unlimited]

        still = left_over(limited, timeout_s=FREE_AGAIN_WITHIN_S, what="limits to be lifted")
        return Proof(not still, "; ".join(still) or f"{', '.join(self.nodes)} has no limit")

    def _look(self, node: str) -> tuple[str, str]:
        """Return what is not seen yet on the node, and what is."""
        if self.context.cluster.process(node) == "gone":
            return self._look_at_end(node)
        now, complaints, seen = offered(self.context.cluster, ResourceLimits).resources(node), [], []
        waited_s = now.waited_s - self._before[node].waited_s
        if self.cpus is not None:
            seen.append(f"{node} waited {waited_s:.1f} s for its CPU")
            complaints += [] if waited_s > 0 else [f"needs no more than {self.cpus:g} CPUs, and never waited for more"]
        if self.memory_bytes is not None:
            seen.append(f"{node} has {now.memory_used_bytes:,} of {now.memory_bytes:,} bytes")
            fits = now.memory_bytes <= self.memory_bytes
            complaints += [] if fits else [f"may still have {now.memory_bytes} bytes"]
        return " and ".join(complaints), ", ".join(seen)

    def _look_at_end(self, node: str) -> tuple[str, str]:
        """Return a complaint and a finding on a node that ended: the kernel kills a node that lacks memory, but other
        steps may have ended it too."""
        status, others = self.context.cluster.exit_status(node), self.context.at_work
        if others.took(node, other_than=self.context.step, since_s=self._began_s):
            return "has ended by another step", ""
        if self.memory_bytes is None or status not in KILLED:
            return f"has ended with status {status}, which this limit does not explain", ""
        return "", f"{node} was killed, with status {status}, for lack of memory: by no other step"
