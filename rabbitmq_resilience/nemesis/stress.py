"""Other processes take CPU, memory and disk where a broker runs: stress-ng runs next to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.stressors import Stressors
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over, on_each
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.offered import offered
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver, node_problems
from rabbitmq_resilience.sut.container_protocol import Stressed, Stressing
from rabbitmq_resilience.workload.workload_base import WorkloadBase

#: The CPU time that stress-ng must have used in any case; its start alone takes less.
CPU_LEAST_S = 0.5
#: The part of its memory that stress-ng must have touched.
MEMORY_LEAST = 0.5
MEMORY_MIN_BYTES = 2**20

Workers = Annotated[int, Field(ge=0, le=256)]


class Stress(ScheduledFault):
    """``cpu_workers`` processes spin, one writes to ``memory_bytes`` again and again, and ``io_workers`` write files to
    the disk that holds the engine's containers."""

    fault: Literal["stress"] = "stress"
    node: str
    cpu_workers: Workers = 0
    memory_bytes: Annotated[int, Field(ge=MEMORY_MIN_BYTES)] | None = None
    io_workers: Workers = 0

    acts_on: ClassVar[str] = "containers"
    example: ClassVar[str] = "node: b1, cpu_workers: 2"
    takes_the_machine: ClassVar[bool] = True

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.cpu_workers or self.memory_bytes or self.io_workers):
            raise ValueError("there is nothing to take; give cpu_workers: 2, memory_bytes: 200000000, or io_workers: 1")
        return self

    def footprint(self, topology: Topology) -> Footprint:  # noqa: ARG002 - no process of a node is touched
        return Footprint(needs=frozenset({"pumba", "stress-ng"}))

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        return node_problems(self.node, topology, workload)

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> StressInjection:
        stressors = Stressors(self.cpu_workers, self.memory_bytes or 0, self.io_workers)
        return StressInjection(context, resolver.nodes(self.node), stressors, for_s)


@dataclass
class StressInjection:
    context: FaultContext
    nodes: tuple[str, ...]
    stressors: Stressors
    for_s: float
    _stressed: dict[str, Stressed] = field(default_factory=dict, init=False)
    _began_s: float = field(default=0.0, init=False)

    @property
    def effect(self) -> Effect:
        """Return the nodes as starved only, as none is surely away."""
        return Effect(nodes_starved=self.nodes)

    def inject(self) -> None:
        stressing = offered(self.context.cluster, Stressing)
        self._began_s = time.monotonic()

        def begin(node: str) -> None:
            self._stressed[node] = stressing.stress(node, self.stressors, for_s=self.for_s)

        with ThreadPoolExecutor(max_workers=len(self.nodes)) as pool:
            list(pool.map(begin, self.nodes))

    def heal(self) -> None:
        """End stress-ng, and start the nodes that the kernel has ended meanwhile."""
        with ExitStack() as stack:
            for stressed in self._stressed.values():
                stack.callback(stressed.close)
        on_each([node for node in self._stressed if self._has_ended(node)], self.context.cluster.start)

    def _has_ended(self, node: str) -> bool:
        """Return whether a node is gone, and no other step has taken it."""
        others = self.context.at_work.took(node, other_than=self.context.step, since_s=self._began_s)
        return self.context.cluster.process(node) == "gone" and not others

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that stress-ng uses what it was asked to use, as the engine counts for its container."""
        used_by: dict[str, str] = {}

        def idle() -> list[str]:
            lacking = []
            for node, stressed in self._stressed.items():
                used = stressed.resources()
                if used is None:
                    lacking.append(f"stress-ng next to {node} has ended")
                    continue
                where = "within the limits of" if stressed.is_within_limits else "next to"
                numbers = f"{used.cpu_s:.1f} s of CPU and {used.memory_used_bytes:,} bytes"
                text = used_by[node] = f"stress-ng has used {numbers} {where} {node}"
                enough = used.memory_used_bytes >= MEMORY_LEAST * self.stressors.memory_bytes
                lacking += [] if used.cpu_s >= CPU_LEAST_S and enough else [f"no more than this was seen: {text}"]
            return lacking

        still = left_over(idle, timeout_s=timeout_s, what="stress-ng to work")
        return Proof(not still, "; ".join(still or used_by.values()))

    def prove_healed(self) -> Proof:
        left = [node for node, stressed in self._stressed.items() if stressed.resources() is not None]
        return Proof(not left, f"stress-ng is still next to {', '.join(left)}" if left else "stress-ng is gone")
