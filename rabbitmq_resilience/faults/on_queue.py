"""Steps that act on one queue of the workload by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rabbitmq_resilience.clusters.spec import Topology
from rabbitmq_resilience.faults.step import Step
from rabbitmq_resilience.workloads.queues import queue_names
from rabbitmq_resilience.workloads.spec import Workload


class QueueStep(Step):
    """``queue`` by its name in the workload."""

    queue: str

    acts_on: ClassVar[str] = "processes"
    example: ClassVar[str] = "queue: q1"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:  # noqa: ARG002 - one form for all
        names = queue_names(workload)
        if workload.exclusive:
            return {"queue": "exclusive queues obey only the consumers whose they are; take another step"}
        letters = workload.dead_letters
        if letters is not None and self.queue in letters.taking(workload.services):
            text = f"{self.queue} takes dead letters: those that go with it would be missed as if brokers had lost them"
            return {"queue": f"{text}; take a queue that publishers publish to"}
        if self.queue in names:
            return {}
        return {"queue": f"{self.queue!r} is not in the workload: {', '.join(names[:8])}"}

    def claims(self, topology: Topology) -> frozenset[str]:  # noqa: ARG002 - queues are everywhere
        return frozenset({f"what is in {self.queue}"})
