"""A feature flag is enabled during the load, as operators do after an upgrade."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.feature_flags import FeatureFlag, flag_needs
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over, serving_node
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable


class EnableFeatureFlag(ScheduledFault):
    """Enable ``flag`` on all nodes, such as ``khepri_db``, with which RabbitMQ moves its metadata to Khepri.

    No flag can be disabled again: healing undoes nothing, and no other scenario is played on this cluster. ``for_s`` is
    how long it may take until all serving nodes list the flag as enabled.
    """

    fault: Literal["enable_feature_flag"] = "enable_feature_flag"
    flag: FeatureFlag

    acts_on: ClassVar[str] = "processes"
    example: ClassVar[str] = "flag: khepri_db"
    needs_calm: ClassVar[bool] = True

    def footprint(self, topology: Topology) -> Footprint:
        """Return the feature flags, as enabling one is locked in the whole cluster, and the need of this flag if it is
        known which versions have it. No attached cluster can permit the action, as it cannot be undone."""
        return Footprint(
            resources=frozenset({"feature flags"}),
            acts={"enable_feature_flag": len(topology.node_names)},
            needs=flag_needs([self.flag]),
        )

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> FlagInjection:  # noqa: ARG002 - one form for all
        """Return the injection that enables the flag through a node that serves."""
        return FlagInjection(context, self.flag, serving_node(context))


@dataclass
class FlagInjection:
    """A flag to enable. It is proven once each node that serves lists it as enabled."""

    context: FaultContext
    flag: str
    node: str

    @property
    def effect(self) -> Effect:
        """Return an operation, which is no fault, and the flag, which stays enabled."""
        return Effect(operation=True, becomes=self.flag)

    def inject(self) -> None:
        """Enable the flag. Raise ClusterError if the node refuses, or had it enabled before."""
        if self.context.cluster.api(self.node).has_feature(self.flag):
            raise ClusterError(f"{self.node} has {self.flag} enabled already, so there is nothing to see")
        try:
            self.context.cluster.enable_feature_flag(self.node, self.flag)
        except (ApiError, ApiUnreachable) as error:
            raise ClusterError(f"{self.node} did not enable {self.flag}: {error}") from error

    def prove(self, *, timeout_s: float) -> Proof:
        """Wait until all nodes that serve list it as enabled."""
        still = left_over(self._without, timeout_s=timeout_s, what=f"{self.flag} to be enabled")
        return Proof(not still, "; ".join(still) or f"each node that serves lists {self.flag} as enabled")

    def heal(self) -> None:
        """Leave the flag enabled."""

    def prove_healed(self) -> Proof:
        """Return a proven healing, as there was nothing to undo."""
        return Proof(True, "there was nothing to undo")

    def _without(self) -> list[str]:
        cluster = self.context.cluster
        serving = [node for node in cluster.topology.node_names if cluster.state(node) == "up"]
        return [f"{node} does not list it as enabled" for node in serving if not self._has(node)]

    def _has(self, node: str) -> bool:
        try:
            return self.context.cluster.api(node).has_feature(self.flag)
        except (ApiError, ApiUnreachable):
            return False
