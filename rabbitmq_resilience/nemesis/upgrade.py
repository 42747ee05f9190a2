"""Brokers are upgraded in place: stopped, replaced by another version on the same data, and started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.offered import offered
from rabbitmq_resilience.nemesis.processes import ProcessStep
from rabbitmq_resilience.nemesis.stop import StopInjection, drain
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable
from rabbitmq_resilience.sut.broker.versions import ANY_IMAGE, MAINTENANCE_MODE, UPGRADE_TO
from rabbitmq_resilience.sut.node_protocol import ProcessState, Upgradable
from rabbitmq_resilience.tools.image_names import ImageNameError, broker_image
from rabbitmq_resilience.workload.workload_base import WorkloadBase

#: A node that finds its data in the format of an older version takes longer than one that only comes back.
JOINED_WITHIN_S = 120.0
ENABLED_WITHIN_S = 60.0


class Upgrade(ProcessStep):
    """A graceful stop, and a start as the version ``to``. In containers ``to`` may also be the name of an image, and
    with processes the folder of a broker. Healing does not undo an upgrade: then each node is back on its new version,
    and all others see it. All nodes that ``node`` means go at once; a rolling upgrade has one step for each node.

    ``drain`` is as in the fault ``stop``. With ``enable_feature_flags``, all feature flags that the nodes have in
    common are enabled once they are back, as operators do after the last node. An upgrade that RabbitMQ's upgrade guide
    does not support, or to a version that lacks what the load or the topology needs, is refused, unless the step has
    ``unsupported: true``.
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
    def does(self) -> tuple[str, ...]:
        """Return no action, as attached clusters are never upgraded."""
        return ()

    def footprint(self, topology: Topology) -> Footprint:
        image = f"{ANY_IMAGE if self.unsupported else UPGRADE_TO}{self.to}"
        needs = frozenset({image, MAINTENANCE_MODE} if self.drain else {image})
        return replace(super().footprint(topology), needs=needs, becomes=self.to)

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        problems = dict(super().problems(topology, workload))
        try:
            if not self.to.startswith(("/", "./", "../")):  # such a path names the folder of a broker
                broker_image(self.to, there=())
        except ImageNameError as error:
            problems["to"] = str(error)
        return problems

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> UpgradeInjection:  # noqa: ARG002 - one form for all
        cluster, upgradable = context.cluster, offered(context.cluster, Upgradable)

        def take(node: str) -> None:
            if self.drain:
                drain(cluster, node)
            cluster.stop(node)
            upgradable.upgrade(node, self.to)

        nodes, version = resolver.nodes(self.node), upgradable.version_named(self.to)
        return UpgradeInjection(context, nodes, take, cluster.start, self.taken, self.enable_feature_flags, version)


@dataclass
class UpgradeInjection(StopInjection):
    enable_feature_flags: bool
    version: str

    @property
    def effect(self) -> Effect:
        """Return the nodes as down, and the version that they have afterwards."""
        return replace(super().effect, becomes=self.version, feature_flags=self.enable_feature_flags)

    def heal(self) -> None:
        super().heal()
        if self.enable_feature_flags:
            if still := self._await_joined():
                raise ClusterError(f"feature flags were not enabled: {'; '.join(still)}")
            node, *_ = self.nodes
            self.context.cluster.run_tool(node, "rabbitmqctl", "enable_feature_flag", "all", timeout_s=ENABLED_WITHIN_S)

    def prove_healed(self) -> Proof:
        """Return a proof that each node reports the new version, and that it and all other nodes see each other."""
        still = self._await_joined()
        if still:
            return Proof(False, "; ".join(still))
        if self.enable_feature_flags and (left := self._disabled_flags()):
            return Proof(False, f"feature flags are not enabled: {', '.join(left)}")
        upgradable = offered(self.context.cluster, Upgradable)
        versions = ", ".join(f"{node} is of version {upgradable.version_of(node)}" for node in self.nodes)
        flags = ", and all stable feature flags are enabled" if self.enable_feature_flags else ""
        return Proof(True, f"{versions} and sees all nodes that are up{flags}")

    def _await_joined(self) -> list[str]:
        """Return what is still missing in the end. Do not wait for a node whose new version ended itself."""

        def lacking() -> list[str]:
            seen = [self._lacks(node) for node in self.nodes]
            ended = [node for node in self.nodes if self.context.cluster.process(node) == "gone"]
            if ended:
                raise ClusterError(f"the new version of {', '.join(ended)} ended itself; its log says why")
            return [text for text in seen if text]

        try:
            return left_over(lacking, timeout_s=JOINED_WITHIN_S, what="the new version to join")
        except ClusterError as error:
            return [str(error)]

    def _lacks(self, node: str) -> str:
        """Return why ``node`` is not in its cluster with its new version; empty if it is."""
        cluster = self.context.cluster
        states = {name: cluster.state(name) for name in cluster.topology.node_names}
        if states[node] != "up":
            return f"{node} is {states[node]}"
        up = [name for name, state in states.items() if state == "up"]
        try:
            version = cluster.api(node).version()
            sees = {name: cluster.api(name).running_nodes() for name in up}
        except (ApiError, ApiUnreachable) as error:
            return f"not every node answers: {error}"
        if version != offered(cluster, Upgradable).version_of(node):
            return f"{node} says that it is of version {version}"
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
