"""The base of steps that act by hand on one queue of the workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.workload.queues import queue_names
from rabbitmq_resilience.workload.workload_model import Workload


class QueueStep(ScheduledFault):
    """``queue`` is the name of the queue in the workload."""

    queue: str

    acts_on: ClassVar[str] = "processes"
    example: ClassVar[str] = "queue: q1"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:  # noqa: ARG002 - one form for all
        names = queue_names(workload)
        if workload.exclusive:
            return {"queue": "only the consumers that own exclusive queues may act on them; take another step"}
        letters = workload.dead_letters
        if letters is not None and self.queue in letters.taking(workload.services):
            text = f"{self.queue} takes dead letters: those that the step drops would count as lost by brokers"
            return {"queue": f"{text}; take a queue that publishers publish to"}
        if self.queue in names:
            return {}
        return {"queue": f"{self.queue!r} is not in the workload: {', '.join(names[:8])}"}

    def footprint(self, topology: Topology) -> Footprint:  # noqa: ARG002 - queues are everywhere
        return Footprint(resources=frozenset({f"what is in {self.queue}"}))
