"""Describe the load of a cluster in addition to the clients that publish and consume."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.model.base import Spec

Rate = Annotated[float, Field(ge=0, le=1000)]


class Churn(Spec):
    """Rates at which connections, channels, queues (classic, exclusive, not durable) and bindings are opened and closed
    again, from the start of the load to its end. At most 50 of each kind are open at a time, so a cluster that cannot
    keep up gets fewer. The record says how many were opened, and how many failed."""

    connections_per_s: Rate = 0
    channels_per_s: Rate = 0
    queues_per_s: Rate = 0
    bindings_per_s: Rate = 0

    @model_validator(mode="after")
    def _any(self) -> Self:
        if not any(dict(self).values()):
            raise ValueError("churn opens nothing; give a rate, such as connections_per_s: 5, or leave churn out")
        return self
