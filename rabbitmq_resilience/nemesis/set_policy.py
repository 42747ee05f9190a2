"""A policy is set on queues during the load, and removed again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over, serving_node
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable
from rabbitmq_resilience.workload.workload_base import WorkloadBase

#: Higher than the priority of the load's own policy, which is 0.
PRIORITY = 10
GONE_WITHIN_S = 20.0

Value = bool | int | Annotated[str, StringConstraints(max_length=200)]


class SetPolicy(ScheduledFault):
    """Set a policy with ``definition``, such as ``{delivery-limit: 5}``, on ``queue``, by default on all queues of the
    load. Healing removes it again.

    A queue has one policy at a time. While this one is set, the load's own policy (mirrored queues have one) has no
    effect. Messages that a policy drops on purpose, by ``message-ttl`` or ``max-length``, count as lost.

    Brokers do not apply a policy to queues of a type that lacks one of its keys, such as ``delivery-limit`` to classic
    queues. Without ``queue``, the step is proven once all queues of some type report the policy, and no type has some
    that do and some that do not.
    """

    fault: Literal["set_policy"] = "set_policy"
    definition: Annotated[Mapping[str, Value], Field(min_length=1)]
    queue: str | None = None

    acts_on: ClassVar[str] = "processes"
    example: ClassVar[str] = "definition: {delivery-limit: 5}"

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:  # noqa: ARG002 - one form for all
        """Return what is wrong with the step, as {field: text}."""
        text = "" if self.queue is None else workload.queue_problem(self.queue)
        return {"queue": text} if text else {}

    def footprint(self, topology: Topology) -> Footprint:  # noqa: ARG002 - a policy is of the whole cluster
        """Return the policy of queues, as they have one at a time."""
        return Footprint(resources=frozenset({"the policy of queues"}))

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> PolicyInjection:  # noqa: ARG002 - one form for all
        """Return the injection that sets the policy through a node that serves."""
        return PolicyInjection(context, dict(self.definition), self.queue, serving_node(context))


@dataclass
class PolicyInjection:
    """A policy to set. It is proven once each queue of the types that it is for reports it; the healing, once none
    does."""

    context: FaultContext
    definition: Mapping[str, Value]
    queue: str | None
    node: str

    effect: ClassVar[Effect] = Effect(operation=True)
    name: ClassVar[str] = "set-by-a-step"

    def inject(self) -> None:
        """Set the policy. Raise ClusterError if the node refuses it."""
        pattern = ".*" if self.queue is None else f"^{re.escape(self.queue)}$"
        try:
            self.context.cluster.api(self.node).set_policy(
                self._vhost, self.name, self.definition, pattern=pattern, priority=PRIORITY
            )
        except (ApiError, ApiUnreachable) as error:
            raise ClusterError(f"{self.node} did not take the policy {dict(self.definition)}: {error}") from error

    def prove(self, *, timeout_s: float) -> Proof:
        """Wait until the queues report the policy."""
        return self._await(there=True, timeout_s=timeout_s)

    def heal(self) -> None:
        """Remove the policy."""
        self.context.cluster.api(serving_node(self.context)).delete_policy(self._vhost, self.name)

    def prove_healed(self) -> Proof:
        """Wait until no queue reports it any more."""
        return self._await(there=False, timeout_s=GONE_WITHIN_S)

    def _await(self, *, there: bool, timeout_s: float) -> Proof:
        said = f"{self.queue or 'each queue of its types'} {'reports' if there else 'does not report'} the policy"
        still = left_over(lambda: self._otherwise(there=there), timeout_s=timeout_s, what=said)
        return Proof(not still, "; ".join(still) or said)

    def _otherwise(self, *, there: bool) -> list[str]:
        try:
            rows = self.context.cluster.api(serving_node(self.context)).queue_states(self._vhost)
        except (ApiError, ApiUnreachable) as error:
            return [f"the queues cannot be asked: {error}"]
        mine = [row for row in rows if self.queue in {None, row["name"]}]
        having = [row for row in mine if row.get("policy") == self.name]
        if not there:
            return [f"{row['name']} still reports the policy" for row in having]
        types = {row.get("type") for row in having}
        lacking = [row for row in mine if row not in having and (not types or row.get("type") in types)]
        wrong = [f"{row['name']} does not report the policy" for row in lacking]
        return sorted(wrong) or ([] if mine else ["no such queue is listed"])

    @property
    def _vhost(self) -> str:
        return self.context.load.vhost
