"""Brokers are upgraded in place: stopped, replaced by those of another version on the same data, and started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from rabbitmq_resilience.clusters.broker.management import ApiError, ApiUnreachable
from rabbitmq_resilience.clusters.broker.versions import ANY_IMAGE, MAINTENANCE_MODE, UPGRADE_TO
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.clusters.protocol import Cluster, ProcessState, Upgradable
from rabbitmq_resilience.clusters.spec import Topology
from rabbitmq_resilience.faults.fault import FaultContext, Proof, left_over
from rabbitmq_resilience.faults.processes import ProcessStep
from rabbitmq_resilience.faults.stop import StopInjection, drain
from rabbitmq_resilience.faults.targets import Resolver
from rabbitmq_resilience.record.events import Effect
from rabbitmq_resilience.tools.image_names import ImageNameError, broker_image
from rabbitmq_resilience.workloads.spec import Workload

#: A node that finds its data in the format of an older version has more to do than one that only comes back.
JOINED_WITHIN_S = 120.0
ENABLED_WITHIN_S = 60.0


class Upgrade(ProcessStep):
    """A graceful stop, and a start as the version ``to``; in containers also as the image of that name, and with
    processes as the broker in that folder. An upgrade is not undone: healed, each node is back
    on its new version, seen by all others. All of ``node`` go at once; upgrades that roll are one step for each.

    ``drain`` as in the fault stop. ``enable_feature_flags``: once they are back, what all nodes of the cluster have in
    common is put to use, as operators do after the last one. An upgrade that RabbitMQ does
    not support, by its upgrade guide, is refused, unless it says that it is ``unsupported``.
    """

    fault: Literal["upgrade"] = "upgrade"
    to: str
    drain: bool = False
    enable_feature_flags: bool = False
    unsupported: bool = False

    acts_on: ClassVar[str] = "versions"
    example: ClassVar[str] = 'node: b1, to: "3.11.28", drain: true'
    taken: ClassVar[ProcessState] = "gone"

    @property
    def needs(self) -> frozenset[str]:
        drained = {MAINTENANCE_MODE} if self.drain else set()
        return frozenset({f"{ANY_IMAGE if self.unsupported else UPGRADE_TO}{self.to}", *drained})

    @property
    def becomes(self) -> str:
        return self.to

    def acts(self, topology: Topology) -> Mapping[str, int]:  # noqa: ARG002 - of the protocol
        """No cluster that is there already is upgraded."""
        return {}

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        told = dict(super().problems(topology, workload))
        try:
            if not self.to.startswith(("/", "./", "../")):  # which names the folder of a broker
                broker_image(self.to, there=())
        except ImageNameError as error:
            told["to"] = str(error)
        return told

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> UpgradeInjection:  # noqa: ARG002
        cluster = upgradable(context.cluster)

        def take(node: str) -> None:
            if self.drain:
                drain(cluster, node)
            cluster.stop(node)
            cluster.upgrade(node, self.to)

        nodes = resolver.nodes(self.node)
        return UpgradeInjection(context, nodes, take, cluster.start, self.taken, self.enable_feature_flags, self.to)


@dataclass
class UpgradeInjection(StopInjection):
    enable_feature_flags: bool
    to: str

    @property
    def effect(self) -> Effect:
        """Nodes that are down, and what they are afterwards."""
        return replace(super().effect, becomes=self.to)

    def heal(self) -> None:
        super().heal()
        if self.enable_feature_flags:
            if still := self._await_joined():
                raise ClusterError(f"feature flags were not enabled: {'; '.join(still)}")
            node, *_ = self.nodes
            self.context.cluster.run_tool(node, "rabbitmqctl", "enable_feature_flag", "all", timeout_s=ENABLED_WITHIN_S)

    def prove_healed(self) -> Proof:
        """Each node says that it is of the new version, and it and all others see each other."""
        still = self._await_joined()
        if still:
            return Proof(False, "; ".join(still))
        if self.enable_feature_flags and (left := self._disabled_flags()):
            return Proof(False, f"feature flags are not enabled: {', '.join(left)}")
        cluster = upgradable(self.context.cluster)
        versions = ", ".join(f"{node} is of version {cluster.version_of(node)}" for node in self.nodes)
        flags = ", and all stable feature flags are enabled" if self.enable_feature_flags else ""
        return Proof(True, f"{versions} and sees all nodes that are up{flags}")

    def _await_joined(self) -> list[str]:
        """What is missing in the end. It is not waited for a node whose new version ended itself."""

        def lacking() -> list[str]:
            seen = [self._lacks(node) for node in self.nodes]
            ended = [node for node in self.nodes if self.context.cluster.process(node) == "gone"]
            if ended:
                raise ClusterError(f"the new version of {', '.join(ended)} ended itself; its log tells why")
            return [text for text in seen if text]

        try:
            return left_over(lacking, timeout_s=JOINED_WITHIN_S, what="the new version to join")
        except ClusterError as error:
            return [str(error)]

    def _lacks(self, node: str) -> str:
        """What ``node`` lacks of being in its cluster with its new version; empty if nothing."""
        cluster = upgradable(self.context.cluster)
        states = {name: cluster.state(name) for name in cluster.topology.node_names}
        if states[node] != "up":
            return f"{node} is {states[node]}"
        up = [name for name, state in states.items() if state == "up"]
        try:
            told = cluster.api(node).version()
            sees = {name: cluster.api(name).running_nodes() for name in up}
        except (ApiError, ApiUnreachable) as error:
            return f"not everybody tells: {error}"
        if told != cluster.version_of(node):
            return f"{node} says that it is of version {told}"
        unseen = [n for n in up if cluster.broker_name(n) not in sees[node] or cluster.broker_name(node) not in sees[n]]
        return f"{node} and {', '.join(unseen)} do not see each other" if unseen else ""

    def _disabled_flags(self) -> list[str]:
        api = self.context.cluster.api(self.nodes[0])

        def disabled() -> list[str]:
            try:
                flags = api.get("feature-flags")
            except (ApiError, ApiUnreachable) as error:
                return [str(error)]
            return [
                flag["name"]
                for flag in flags
                if flag["state"] != "enabled" and flag.get("stability", "stable") != "experimental"
            ]

        return left_over(disabled, timeout_s=ENABLED_WITHIN_S, what="feature flags to be enabled")


def upgradable(cluster: Cluster) -> Upgradable:
    """Return the cluster as one whose nodes can become others."""
    assert isinstance(cluster, Upgradable), "what a driver does not offer is refused before"
    return cluster
