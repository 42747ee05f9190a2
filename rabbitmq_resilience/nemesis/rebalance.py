"""Leaders are spread evenly over the nodes again, as operators do after maintenance: an operation, no fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over, serving_node
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver

#: What the asked node logs when the operation begins and ends (rabbit_amqqueue:rebalance/3).
_BEGUN, _DONE = b"Starting queue rebalance operation", b"Finished queue rebalance operation"


class Rebalance(ScheduledFault):
    """``POST /api/rebalance/queues`` at a node that is up. ``for_s`` is how long the operation may take."""

    fault: Literal["rebalance"] = "rebalance"

    acts_on: ClassVar[str] = "processes"

    needs_calm: ClassVar[bool] = True

    def footprint(self, topology: Topology) -> Footprint:
        return Footprint(resources=frozenset({"where leaders are"}), acts={"rebalance": len(topology.node_names)})

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> RebalanceInjection:  # noqa: ARG002 - one form for all
        return RebalanceInjection(context, serving_node(context))


@dataclass
class RebalanceInjection:
    context: FaultContext
    node: str
    _log_begins: int = field(default=0, init=False)

    effect: ClassVar[Effect] = Effect(operation=True)

    def inject(self) -> None:
        self._log_begins = self._log.stat().st_size
        self.context.cluster.api(self.node).rebalance_queues()

    def prove(self, *, timeout_s: float) -> Proof:
        unfinished = left_over(
            lambda: [] if self._is_done() else [f"{self.node} did not log that it began and is done"],
            timeout_s=timeout_s,
            what="queues to be rebalanced",
        )
        return Proof(not unfinished, "; ".join(unfinished) or f"{self.node} logged that it has rebalanced the queues")

    def heal(self) -> None:
        """Do nothing, as there is nothing to undo."""

    def prove_healed(self) -> Proof:
        return Proof(True, "there was nothing to undo")

    @property
    def _log(self) -> Path:
        return self.context.cluster.logs()[self.node]

    def _is_done(self) -> bool:
        """Return whether a rebalancing that began after the injection is done. One that was under way before does not
        count."""
        _, begun, after = self._logged().partition(_BEGUN)
        return bool(begun) and _DONE in after

    def _logged(self) -> bytes:
        with self._log.open("rb") as log:
            log.seek(self._log_begins)
            return log.read()
