"""The base of steps that act by hand on one queue of the workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.workload.workload_base import WorkloadBase


class QueueStep(ScheduledFault):
    """``queue`` is the name of the queue in the workload."""

    queue: str

    acts_on: ClassVar[str] = "processes"
    example: ClassVar[str] = "queue: q1"

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:  # noqa: ARG002 - one form for all
        text = self.queue_problem(workload)
        return {"queue": text} if text else {}

    def queue_problem(self, workload: WorkloadBase) -> str:
        """Return why the step cannot act on that queue; empty if it can."""
        return workload.emptying_problem(self.queue)

    def footprint(self, topology: Topology) -> Footprint:  # noqa: ARG002 - queues are everywhere
        return Footprint(resources=frozenset({f"what is in {self.queue}"}))
