"""Leaders are spread evenly over the nodes again, as operators do after maintenance: no fault, but a step like one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from faults.fault import Arena, Effect, Proof, left_over, serving_node
from faults.step import Step
from faults.targets import Resolver

#: What the node that was asked logs when it is done (rabbit_amqqueue:rebalance/3).
_DONE = b"Finished queue rebalance operation"


class Rebalance(Step):
    """``POST /api/rebalance/queues`` at a node that is up; ``for_s`` is how long it may take."""

    fault: Literal["rebalance"] = "rebalance"

    acts_on: ClassVar[str] = "processes"

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> RebalanceInjection:  # noqa: ARG002
        return RebalanceInjection(arena, serving_node(arena))


@dataclass
class RebalanceInjection:
    arena: Arena
    node: str
    _log_begins: int = field(default=0, init=False)

    effect: ClassVar[Effect] = Effect()

    def inject(self) -> None:
        self._log_begins = self._log.stat().st_size
        self.arena.cluster.api(self.node).rebalance_queues()

    def prove(self, *, timeout_s: float) -> Proof:
        unfinished = left_over(
            lambda: [] if _DONE in self._logged() else [f"{self.node} did not say that it is done"],
            timeout_s=timeout_s,
            what="queues to be rebalanced",
        )
        return Proof(not unfinished, "; ".join(unfinished) or f"{self.node} has rebalanced the queues")

    def heal(self) -> None:
        """There is nothing to undo."""

    def prove_healed(self) -> Proof:
        return Proof(True, "there was nothing to undo")

    @property
    def _log(self) -> Path:
        return self.arena.cluster.logs()[self.node]

    def _logged(self) -> bytes:
        with self._log.open("rb") as log:
            log.seek(self._log_begins)
            return log.read()
