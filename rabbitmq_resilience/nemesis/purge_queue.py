"""An operator empties a queue by hand during the load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, serving_node
from rabbitmq_resilience.nemesis.on_queue import QueueStep
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.sut.broker.amqp import purge_queue

PURGED_WITHIN_S = 15.0


class PurgeQueue(QueueStep):
    """``queue`` loses all messages that are ready in it. ``for_s`` is how long that may take to be seen."""

    fault: Literal["purge_queue"] = "purge_queue"

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> PurgeInjection:  # noqa: ARG002 - one form for all
        return PurgeInjection(context, self.queue, serving_node(context))


@dataclass
class PurgeInjection:
    """A queue to purge. It is proven by the number in the broker's answer, which excludes what consumers have taken."""

    context: FaultContext
    queue: str
    node: str
    _dropped: int = field(default=0, init=False)

    effect: ClassVar[Effect] = Effect()

    def inject(self) -> None:
        cluster, vhost = self.context.cluster, self.context.load.vhost
        self._dropped = purge_queue(
            cluster.access, cluster.amqp_endpoint(self.node), vhost=vhost, queue=self.queue, timeout_s=PURGED_WITHIN_S
        )

    def prove(self, *, timeout_s: float) -> Proof:  # noqa: ARG002 - the broker has already answered
        if not self._dropped:
            return Proof(False, f"{self.queue} held no message that was ready, so there was nothing to purge")
        return Proof(True, f"{self.node} answered that it dropped {self._dropped} messages of {self.queue}")

    def heal(self) -> None:
        """Do nothing, as the messages stay gone."""

    def prove_healed(self) -> Proof:
        return Proof(True, "there was nothing to undo")
