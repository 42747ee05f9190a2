"""A feature flag is put to use while the load goes on, as operators do after an upgrade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from rabbitmq_resilience.clusters.broker.management import ApiError, ApiUnreachable
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.clusters.feature_flags import FeatureFlag, flag_needs
from rabbitmq_resilience.clusters.spec import Topology
from rabbitmq_resilience.faults.fault import FaultContext, Proof, left_over, serving_node
from rabbitmq_resilience.faults.step import Step
from rabbitmq_resilience.faults.targets import Resolver
from rabbitmq_resilience.record.events import Effect


class EnableFeatureFlag(Step):
    """Enable ``flag`` on all nodes, such as ``khepri_db``, with which RabbitMQ moves its metadata to Khepri.

    No flag can be disabled again: healing undoes nothing, and no other scenario is played on this cluster. ``for_s`` is
    how long enabling may take to be seen on all nodes that serve.
    """

    fault: Literal["enable_feature_flag"] = "enable_feature_flag"
    flag: FeatureFlag

    acts_on: ClassVar[str] = "processes"
    example: ClassVar[str] = "flag: khepri_db"
    needs_calm: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        """The flag, where it is known which versions have it."""
        return flag_needs([self.flag])

    def acts(self, topology: Topology) -> Mapping[str, int]:
        """What an attached cluster would have to permit, and no cluster file can: it cannot be undone."""
        return {"enable_feature_flag": len(topology.node_names)}

    def claims(self, topology: Topology) -> frozenset[str]:  # noqa: ARG002 - a flag is of the whole cluster
        """Feature flags: enabling is locked in the whole cluster."""
        return frozenset({"feature flags"})

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> FlagInjection:  # noqa: ARG002
        """Return what enables the flag through a node that serves."""
        return FlagInjection(context, self.flag, serving_node(context))


@dataclass
class FlagInjection:
    """Proven by each node that serves: it lists the flag as enabled."""

    context: FaultContext
    flag: str
    node: str

    @property
    def effect(self) -> Effect:
        """No fault, and the flag for good."""
        return Effect(operation=True, becomes=self.flag)

    def inject(self) -> None:
        """Enable the flag. Raises ClusterError where the node refuses, or had it enabled before."""
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
        """There was nothing to undo."""
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
