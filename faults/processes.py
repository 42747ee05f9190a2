"""What kill, stop and pause have in common: they take nodes away and bring them back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

from faults.fault import Arena, Effect, Proof, left_over
from faults.step import Step
from faults.targets import Resolver, fixed_nodes, is_fixed, node_problems
from topologies.cluster import ClusterError, ProcessState
from topologies.spec import Topology
from workloads.spec import Workload

BACK_WITHIN_S = 20.0


class ProcessStep(Step):
    """``node`` is a target, see ``faults.targets``; it may mean several nodes. ``take`` and ``give`` are
    the cluster's methods that make a process ``taken`` and bring it back."""

    node: str

    acts_on: ClassVar[str] = "processes"
    take: ClassVar[str]
    give: ClassVar[str]
    taken: ClassVar[ProcessState]

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        return node_problems(self.node, topology, workload)

    def touches_processes(self, topology: Topology) -> frozenset[str]:
        return frozenset(fixed_nodes(self.node, topology)) if is_fixed(self.node) else frozenset()

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> ProcessInjection:  # noqa: ARG002
        cluster = arena.cluster
        return ProcessInjection(
            arena, resolver.nodes(self.node), getattr(cluster, self.take), getattr(cluster, self.give), self.taken
        )


@dataclass(frozen=True)
class ProcessInjection:
    """Acts on every one of ``nodes`` at once."""

    arena: Arena
    nodes: tuple[str, ...]
    take: Callable[[str], None]
    give: Callable[[str], None]
    taken: ProcessState

    @property
    def effect(self) -> Effect:
        return Effect(nodes_down=self.nodes)

    def inject(self) -> None:
        away = [node for node in self.nodes if self.arena.cluster.process(node) != "running"]
        if away:
            raise ClusterError(f"{', '.join(away)} was not running before the fault began")
        self._each(self.take, self.nodes)

    def heal(self) -> None:
        self._each(self.give, [node for node in self.nodes if self.arena.cluster.process(node) != "running"])

    def prove(self, *, timeout_s: float) -> Proof:
        return self._await(self.taken, timeout_s)

    def prove_healed(self) -> Proof:
        return self._await("running", BACK_WITHIN_S)

    def _await(self, state: ProcessState, timeout_s: float) -> Proof:
        """Every process is seen in ``state``."""

        def others() -> list[str]:
            seen = {node: self.arena.cluster.process(node) for node in self.nodes}
            return [f"{node} is {now}" for node, now in seen.items() if now != state]

        still = left_over(others, timeout_s=timeout_s, what=f"processes to be {state}")
        if still:
            return Proof(False, f"not {state}: {', '.join(still)}")
        return Proof(True, f"the process of {', '.join(self.nodes)} is {state}")

    @staticmethod
    def _each(act: Callable[[str], None], nodes: Collection[str]) -> None:
        with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
            list(pool.map(act, nodes))
