"""Somebody empties a queue by hand, in the middle of everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from faults.fault import Arena, Effect, Proof, left_over, serving_node
from faults.step import Step
from faults.targets import Resolver
from topologies.spec import Topology
from workloads.queues import queue_names
from workloads.spec import Workload

COUNTED_WITHIN_S = 15.0


class PurgeQueue(Step):
    """``queue`` loses all messages that are ready in it; ``for_s`` is how long that may take to be seen."""

    fault: Literal["purge_queue"] = "purge_queue"
    queue: str

    acts_on: ClassVar[str] = "processes"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:  # noqa: ARG002 - one form for all
        return queue_problems(self.queue, workload)

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> PurgeInjection:  # noqa: ARG002
        return PurgeInjection(arena, self.queue, serving_node(arena))


@dataclass
class PurgeInjection:
    arena: Arena
    queue: str
    node: str
    _held: int = field(default=0, init=False)

    effect: ClassVar[Effect] = Effect()

    def inject(self) -> None:
        self._held = self._ready(timeout_s=COUNTED_WITHIN_S)
        self.arena.cluster.api(self.node).purge_queue(self.arena.load.load.vhost, self.queue)

    def prove(self, *, timeout_s: float) -> Proof:
        if not self._held:
            return Proof(False, f"{self.queue} held no message that was ready, so there was nothing to purge")
        seen = [self._held]

        def unpurged() -> list[str]:
            seen[0] = min(seen[0], self._ready(timeout_s=timeout_s))
            return [f"{self.queue} still holds {seen[0]} messages"] if seen[0] >= self._held else []

        still = left_over(unpurged, timeout_s=timeout_s, what=f"{self.queue} to be purged")
        return Proof(not still, "; ".join(still) or f"{self.queue} held {self._held} messages, and then {seen[0]}")

    def heal(self) -> None:
        """What is gone stays gone."""

    def prove_healed(self) -> Proof:
        return Proof(True, "there was nothing to undo")

    def _ready(self, *, timeout_s: float) -> int:
        """From a sample that begins now. Raises WaitTimeout if there is none."""
        return self.arena.observer.fresh_queues(timeout_s=timeout_s)[self.queue]["ready"] or 0


def queue_problems(queue: str, workload: Workload) -> Mapping[str, str]:
    """What is wrong with the field ``queue`` of a step."""
    names = queue_names(workload)
    return {} if queue in names else {"queue": f"{queue!r} is not in the workload: {', '.join(names[:8])}"}
