"""The base of kill, stop and pause, which take nodes away and bring them back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import ClassVar

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver, node_problems, size_of
from rabbitmq_resilience.sut.node_protocol import ProcessObservation, ProcessState
from rabbitmq_resilience.workload.workload_base import WorkloadBase

BACK_WITHIN_S = 20.0
#: The exit statuses after SIGKILL: as a parent process gets it, and as shells and container engines report it.
KILLED = (-9, 137)


class ProcessStep(ScheduledFault):
    """``node`` is a target, see ``nemesis.targets``; it may mean several nodes. ``take`` and ``give`` are
    the cluster's methods that bring a process to the state ``taken`` and back."""

    node: str

    acts_on: ClassVar[str] = "processes"
    take: ClassVar[str]
    give: ClassVar[str]
    taken: ClassVar[ProcessState]

    @property
    def does(self) -> tuple[str, ...]:
        """Return the verbs of the actions (``model.actions``) that the step does to each of its nodes."""
        return (self.take,)

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        return node_problems(self.node, topology, workload)

    def footprint(self, topology: Topology) -> Footprint:
        """Return the processes of the nodes. With ``pause_if_all_down`` no node surely serves, as any may pause."""
        left = len(topology.node_names) - size_of(self.node, topology)
        together = left if topology.pause_if_all_down is None else 0
        return replace(Footprint.of_nodes(self.node, topology, acts=self.does), unsettles=True, together=together)

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> ProcessInjection:  # noqa: ARG002 - one form for all
        cluster = context.cluster
        return ProcessInjection(
            context, resolver.nodes(self.node), getattr(cluster, self.take), getattr(cluster, self.give), self.taken
        )


@dataclass
class ProcessInjection:
    """Act on all of ``nodes`` at once. Nodes that this step has not taken itself are neither proven nor brought
    back."""

    context: FaultContext
    nodes: tuple[str, ...]
    take: Callable[[str], None]
    give: Callable[[str], None]
    taken: ProcessState
    #: The process that each node had when this step took it.
    _lives: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def effect(self) -> Effect:
        return Effect(nodes_down=self.nodes)

    @property
    def places(self) -> ProcessObservation:
        """Return the object that knows the processes."""
        return self.context.cluster

    @property
    def returning(self) -> bool:
        """Return whether a process that is gone comes back by itself, before ``heal`` starts it."""
        return self.context.cluster.restarts_brokers

    def inject(self) -> None:
        self.context.refuse_if_taken(self.nodes)
        lives = {node: self.places.life(node) for node in self.nodes}
        away = [n for n, life in lives.items() if life is None or self.places.process(n) != "running"]
        if away:
            raise ClusterError(f"{', '.join(away)} was not running before the fault began")
        self._lives = {node: life for node, life in lives.items() if life is not None}
        self.take_all()

    def take_all(self) -> None:
        self._each(self.take, self.nodes)

    def give_all(self, nodes: Collection[str]) -> None:
        self._each(self.give, nodes)

    def heal(self) -> None:
        self.give_all([n for n in self._lives if self.returning or self.places.process(n) != "running"])

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that the same process that ran before is ``taken``, and did not end for another reason."""
        return self._await(self.taken, self._not_taken, self._describe_taken, timeout_s)

    def prove_healed(self) -> Proof:
        """Return a proof that the suspended process continues, or that another one runs in place of one that ended."""
        return self._await("running", self._not_back, self._describe_back, BACK_WITHIN_S)

    def _await(
        self, state: ProcessState, lacks: Callable[[str], str], describe: Callable[[str], str], timeout_s: float
    ) -> Proof:
        def others() -> list[str]:
            return [text for node in self.nodes if (text := lacks(node))]

        still = left_over(others, timeout_s=timeout_s, what=f"processes to be {state}")
        return Proof(not still, "; ".join(still or map(describe, self.nodes)))

    def _not_taken(self, node: str) -> str:
        places = self.places
        now = places.process(node)
        if self.taken == "gone" and self.returning and places.life(node) not in (None, self._lives[node]):
            return ""
        if now != self.taken:
            return f"not {self.taken}: {node} is {now}"
        if now == "gone":
            return self.ended_otherwise(node, places.exit_status(node))
        return "" if places.life(node) == self._lives[node] else f"{node} has another process than before"

    def ended_otherwise(self, node: str, status: int | None) -> str:
        """Return why this ``status`` does not fit what was done to the node; empty if it does."""
        by_kill = status is None or status in KILLED
        return "" if by_kill else f"{node} was not killed: it ended with status {status}"

    def _describe_taken(self, node: str) -> str:
        status = f", with status {self.places.exit_status(node)}" if self.taken == "gone" else ""
        return f"{self._lives[node]} of {node} is {self.taken}{status}"

    def _not_back(self, node: str) -> str:
        now, life = self.places.process(node), self.places.life(node)
        if now != "running":
            return f"not running: {node} is {now}"
        if (life == self._lives.get(node)) != (self.taken == "suspended"):
            return f"{node} has {'another' if self.taken == 'suspended' else 'the same'} process as before"
        return ""

    def _describe_back(self, node: str) -> str:
        return f"{self.places.life(node)} of {node} is running"

    @staticmethod
    def _each(act: Callable[[str], None], nodes: Collection[str]) -> None:
        with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
            list(pool.map(act, nodes))
