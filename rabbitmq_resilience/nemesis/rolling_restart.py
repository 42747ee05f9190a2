"""All brokers are restarted one after another, by the orchestrator that keeps them running."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.offered import offered
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.sut.orchestration import RollingRestarts

#: A restart under way cannot be stopped: each broker left may take this long, and is reported if it takes longer.
EACH_WITHIN_S = 320.0


class RollingRestart(ScheduledFault):
    """``kubectl rollout restart`` of the StatefulSet, or the update of its own operator. ``for_s`` is how long it may
    take until the last broker is ready again."""

    fault: Literal["rolling_restart"] = "rolling_restart"

    acts_on: ClassVar[str] = "orchestrator"
    needs_calm: ClassVar[bool] = True

    def footprint(self, topology: Topology) -> Footprint:
        """Return all nodes, of which one at a time is restarted."""
        nodes = frozenset(topology.node_names)
        return Footprint(processes=nodes, possible_processes=nodes, acts={"restart_all": 1}, unsettles=True)

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> RollingRestartInjection:  # noqa: ARG002 - one form for all
        return RollingRestartInjection(context, tuple(context.cluster.topology.node_names))


@dataclass
class RollingRestartInjection:
    context: FaultContext
    nodes: tuple[str, ...]
    _lives: dict[str, str | None] = field(default_factory=dict, init=False)
    #: The seconds from the beginning until each node was first seen with another process.
    _seen_s: dict[str, float] = field(default_factory=dict, init=False)
    _begun_s: float = field(default=0.0, init=False)
    _asked: bool = field(default=False, init=False)

    @property
    def effect(self) -> Effect:
        """Return the nodes as down from time to time: each may be away at any time, and none surely is."""
        return Effect(nodes_down=self.nodes, intermittent=True)

    def inject(self) -> None:
        self.context.refuse_if_taken(self.nodes)
        cluster = self.context.cluster
        self._lives = {node: cluster.life(node) for node in self.nodes}
        if away := [node for node, life in self._lives.items() if life is None]:
            raise ClusterError(f"{', '.join(away)} was not running before it began")
        self._begun_s = time.monotonic()
        self._asked = True
        offered(cluster, RollingRestarts).restart_all()

    def prove(self, *, timeout_s: float) -> Proof:
        still = left_over(self._not_restarted, timeout_s=timeout_s, what="all brokers to be restarted")
        if still:
            return Proof(False, f"not restarted within {timeout_s:.0f} s: {'; '.join(still)}")
        order = sorted(self._seen_s.items(), key=lambda pair: pair[1])
        return Proof(True, "each has another process: " + ", ".join(f"{node} after {s:.0f} s" for node, s in order))

    def heal(self) -> None:
        """Wait for the other brokers to be restarted, as a restart cannot be cancelled."""
        if not self._asked:
            return
        within_s = EACH_WITHIN_S * len(self.nodes)
        if still := left_over(self._not_restarted, timeout_s=within_s, what="the rest to be restarted"):
            raise ClusterError(f"the restart does not come to an end: {'; '.join(still)}")

    def prove_healed(self) -> Proof:
        cluster = self.context.cluster
        still = left_over(
            lambda: [f"{node} is {state}" for node in self.nodes if (state := cluster.process(node)) != "running"],
            timeout_s=EACH_WITHIN_S,
            what="all brokers to run",
        )
        return Proof(not still, "; ".join(still) or "all of them run, and are ready")

    def _not_restarted(self) -> list[str]:
        """Return which brokers are not restarted yet, by their processes and by the orchestrator."""
        cluster = self.context.cluster
        for node in self.nodes:
            if node not in self._seen_s and cluster.life(node) not in (None, self._lives[node]):
                self._seen_s[node] = time.monotonic() - self._begun_s
        same = [f"{node} has the same process as before" for node in self.nodes if node not in self._seen_s]
        return [*same, *offered(cluster, RollingRestarts).not_restarted()]
