"""Brokers die at once and lose all that they stored, as if a machine's disk broke; they join again with nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over
from rabbitmq_resilience.nemesis.processes import ProcessInjection, ProcessStep
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable

JOINED_WITHIN_S = 60.0


class LoseDisk(ProcessStep):
    """SIGKILL, and all data of the node is removed. Healing starts the node, which joins its cluster as a blank node.

    With ``replace``, the node is replaced as RabbitMQ's guides describe ("Cluster Formation and Peer Discovery", nodes
    that were reset; "Quorum Queues", managing members). Before it starts, a node that serves forgets it (``rabbitmqctl
    forget_cluster_node``). Once it has joined, quorum queues get a member on it again (``rabbitmq-queues grow``).
    Without ``replace``, peer discovery alone leads it back. Up to 3.12 and from 4.3 on, that was seen to be enough; on
    4.0.5 queues kept two of three members.

    In a quorum queue nothing that was confirmed may be lost if a message that was sent after the kill is confirmed
    before the node starts again: then a majority without this node has all that came before. Otherwise, and in classic
    queues, losses of messages that were sent before the node was up again are reported and permitted.
    """

    fault: Literal["lose_disk"] = "lose_disk"
    replace: bool = True

    example: ClassVar[str] = 'node: "follower:q1"'
    heals_within_s: ClassVar[float] = JOINED_WITHIN_S

    @property
    def does(self) -> tuple[str, ...]:
        """Return what an attached cluster has to permit."""
        return ("kill", "lose_data")

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> LoseDiskInjection:  # noqa: ARG002 - one form for all
        """Return the injection that takes the nodes and their data away, and replaces them."""
        start = context.cluster.start
        return LoseDiskInjection(context, resolver.nodes(self.node), _killer(context), start, "gone", self.replace)


@dataclass
class LoseDiskInjection(ProcessInjection):
    """A broker that loses its data. It is proven once its process is gone and no data is stored."""

    replace: bool

    @property
    def effect(self) -> Effect:
        return Effect(nodes_down=self.nodes, nodes_emptied=self.nodes)

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that nothing is stored and that the process is gone; wait for the latter."""
        left = [node for node in self.nodes if self.context.cluster.stored_bytes(node)]
        if left:
            return Proof(False, f"{', '.join(left)} still has data")
        return Proof.of_all(
            super().prove(timeout_s=timeout_s), Proof(True, "nothing of what was stored is there any more")
        )

    def heal(self) -> None:
        """Start the nodes, and replace them if that is asked for. Raise ClusterError, once they run, if replacing
        failed."""
        cluster = self.context.cluster
        blank = self.replace and not any(
            map(cluster.stored_bytes, self.nodes)
        )  # other nodes must not forget a node with data
        serving = [node for node in self._others if cluster.state(node) == "up"] if blank else []
        failed: list[str] = []
        if blank and self._others and not serving:
            failed.append(f"no other node serves, so that none could forget {', '.join(self.nodes)} before the start")
        for node in self.nodes if serving else ():
            self._try(failed, serving[0], "rabbitmqctl", "forget_cluster_node", node)
        super().heal()
        if serving and not failed:
            failed += left_over(self._not_joined, timeout_s=JOINED_WITHIN_S, what="the blank nodes to join")
            for node in () if failed else self.nodes:
                grow = partial(self._not_grown, serving[0], node)
                failed += left_over(grow, timeout_s=JOINED_WITHIN_S, what=f"queues to get a member on {node}")
        if failed:
            raise ClusterError("; ".join(failed))

    @property
    def _others(self) -> list[str]:
        return [node for node in self.context.cluster.topology.node_names if node not in self.nodes]

    def _try(self, failed: list[str], at: str, tool: str, command: str, node: str, *more: str) -> None:
        cluster = self.context.cluster
        try:
            cluster.run_tool(at, tool, command, cluster.broker_name(node), *more)
        except ClusterError as error:
            failed.append(str(error))

    def _not_grown(self, at: str, node: str) -> list[str]:
        """Give quorum queues a member on the node, and return why not. For a moment a node that runs may not be a
        member yet, and then nothing grows (seen on 4.0.5)."""
        failed: list[str] = []
        self._try(failed, at, "rabbitmq-queues", "grow", node, "all")
        return failed

    def _not_joined(self) -> list[str]:
        cluster = self.context.cluster
        names = {cluster.broker_name(node): node for node in self.nodes}
        try:
            seen = [cluster.api(node).running_nodes() for node in self._others if cluster.state(node) == "up"]
        except (ApiError, ApiUnreachable) as error:
            return [str(error)]
        return [f"{node} has not joined" for name, node in names.items() if not all(name in nodes for nodes in seen)]


def _killer(context: FaultContext) -> Callable[[str], None]:
    def take(node: str) -> None:
        context.cluster.kill(node)
        context.cluster.lose_data(node)

    return take
