"""Describe services: groups of consumers with queues of their own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from rabbitmq_resilience.history.variation import Variation
from rabbitmq_resilience.model.base import Spec

#: The most publishers, and the most consumers: more than the ports of one address.
CLIENTS_MAX = 100_000

Count = Annotated[int, Field(ge=1, le=CLIENTS_MAX)]


def _some(number: object) -> object:
    if number == 0:
        raise ValueError(
            "without any consumer nothing would show what queues hold; for queues without consumers during the load "
            "write consume: at_drain, and in consumers how many empty them then, such as 1"
        )
    return number


Consumers = Annotated[Count, BeforeValidator(_some)]
Duration = Annotated[float, Field(gt=0, le=86_400)]
Processing = Annotated[float, Field(ge=0, le=60_000)]
#: When consumers connect.
Consume = Literal["always", "at_drain"]


class ProcessingStep(Spec):
    """A processing time for one message, and how long it applies."""

    processing_ms: Processing
    for_s: Duration


class Service(Spec):
    """An application with ``queues`` of its own, which only its ``consumers`` read. ``processing_ms`` and
    ``variable_processing`` are the pace of each consumer, as in the workload. The names of its queues are its name and
    a number (``billing-1``); in a binding, ``service:billing`` stands for all of them. With ``consume: at_drain`` its
    queues have no consumer before the drain."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z]\w*$", max_length=100)]
    queues: Annotated[int, Field(ge=1, le=1000)] = 1
    consumers: Consumers = 1
    processing_ms: Processing = 0
    variable_processing: tuple[ProcessingStep, ...] = ()
    consume: Consume = "always"

    @property
    def queue_names(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(1, self.queues + 1)]

    @property
    def processing(self) -> Variation:
        """Return the time that each of its consumers takes for a message, in ms."""
        return Variation(
            self.processing_ms, tuple((step.processing_ms, step.for_s) for step in self.variable_processing)
        )
