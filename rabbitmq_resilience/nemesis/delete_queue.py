"""An operator deletes a queue by hand, with all its messages, and declares it again later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over, serving_node
from rabbitmq_resilience.nemesis.on_queue import QueueStep
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.workload.workload_base import WorkloadBase

THERE_AGAIN_WITHIN_S = 20.0


class DeleteQueue(QueueStep):
    """``queue`` is deleted with its messages. Healing declares it again with the same properties."""

    fault: Literal["delete_queue"] = "delete_queue"

    def queue_problem(self, workload: WorkloadBase) -> str:
        """Return why the queue cannot be deleted and declared again; empty if it can."""
        return workload.deleting_problem(self.queue)

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> DeleteInjection:  # noqa: ARG002 - one form for all
        return DeleteInjection(context, self.queue, serving_node(context))


@dataclass
class DeleteInjection:
    context: FaultContext
    queue: str
    node: str
    _declared: Mapping[str, Any] = field(default_factory=dict, init=False)

    @property
    def effect(self) -> Effect:
        return Effect(queue_deleted=self.queue)

    def inject(self) -> None:
        self._declared = self._definitions().get(self.queue, {})
        if not self._declared:
            raise ClusterError(f"{self.node} knows no queue {self.queue}")
        if not self.context.cluster.api(self.node).delete_queue(self._vhost, self.queue):
            raise ClusterError(f"{self.node} had no queue {self.queue} to delete any more: this step did not delete it")

    def heal(self) -> None:
        if self._declared:
            self.context.cluster.api(self.node).declare_queue(
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
        listed = f"{self.node} {'lists' if there else 'does not list'} {self.queue}"
        text = listed if there else f"{self.node} answered that it deleted {self.queue}, and {listed}"
        still = left_over(
            lambda: [] if (self.queue in self._definitions()) == there else [f"it is not so that {text}"],
            timeout_s=timeout_s,
            what=text,
        )
        return Proof(not still, "; ".join(still) or text)

    @property
    def _vhost(self) -> str:
        return self.context.load.vhost

    def _definitions(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the queues that the node knows, as they were declared."""
        return {
            queue["name"]: queue for queue in self.context.cluster.api(self.node).definitions(self._vhost)["queues"]
        }
