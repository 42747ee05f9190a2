"""A method never arrives, such as a confirm that a client waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.on_methods import MethodStep
from rabbitmq_resilience.tap.method_rules import Treatment
from rabbitmq_resilience.workload.workload_base import WorkloadBase


class DropMethod(MethodStep):
    """A tap drops a method, with its content if it has one. Nothing of this kind happens on a network
    that works: it shows what a client does when a reply never comes. ``method``, ``process`` and ``times`` are as in
    ``hold_method``. A publish cannot be dropped: the client and the broker count publishes, and each later confirm
    would be for another message."""

    fault: Literal["drop_method"] = "drop_method"

    example: ClassVar[str] = "method: confirms"
    treatment: ClassVar[Treatment] = "drop"

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        """Return what is wrong with the step, as {field: text}."""
        if self.method == "basic.publish":
            text = "a broker that misses a publish confirms each later one by a wrong number; hold_method holds it back"
            return {"method": text}
        return super().problems(topology, workload)
