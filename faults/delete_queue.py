"""Somebody deletes a queue by hand, with all that is in it, and later declares it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from faults.fault import Arena, Effect, Proof, left_over, serving_node
from faults.purge_queue import queue_problems
from faults.step import Step
from faults.targets import Resolver
from topologies.cluster import ClusterError
from topologies.spec import Topology
from workloads.spec import Workload

THERE_AGAIN_WITHIN_S = 20.0


class DeleteQueue(Step):
    """``queue`` is deleted with its messages; healing declares it as it was."""

    fault: Literal["delete_queue"] = "delete_queue"
    queue: str

    acts_on: ClassVar[str] = "processes"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:  # noqa: ARG002 - one form for all
        return queue_problems(self.queue, workload)

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> DeleteInjection:  # noqa: ARG002
        return DeleteInjection(arena, self.queue, serving_node(arena))


@dataclass
class DeleteInjection:
    arena: Arena
    queue: str
    node: str
    _declared: Mapping[str, Any] = field(default_factory=dict, init=False)

    effect: ClassVar[Effect] = Effect()

    def inject(self) -> None:
        self._declared = self._definitions().get(self.queue, {})
        if not self._declared:
            raise ClusterError(f"{self.node} knows no queue {self.queue}")
        self.arena.cluster.api(self.node).delete_queue(self._vhost, self.queue)

    def heal(self) -> None:
        if self._declared:
            self.arena.cluster.api(self.node).declare_queue(
                self._vhost,
                self.queue,
                arguments=self._declared["arguments"],
                durable=self._declared["durable"],
            )

    def prove(self, *, timeout_s: float) -> Proof:
        return self._await(there=False, timeout_s=timeout_s)

    def prove_healed(self) -> Proof:
        return self._await(there=True, timeout_s=THERE_AGAIN_WITHIN_S)

    def _await(self, *, there: bool, timeout_s: float) -> Proof:
        told = f"{self.node} {'lists' if there else 'does not list'} {self.queue}"
        still = left_over(
            lambda: [] if (self.queue in self._definitions()) == there else [f"it is not so that {told}"],
            timeout_s=timeout_s,
            what=told,
        )
        return Proof(not still, "; ".join(still) or told)

    @property
    def _vhost(self) -> str:
        return self.arena.load.load.vhost

    def _definitions(self) -> Mapping[str, Mapping[str, Any]]:
        """The queues that the node knows, as they were declared."""
        return {queue["name"]: queue for queue in self.arena.cluster.api(self.node).definitions(self._vhost)["queues"]}
