"""What else there is on a cluster beside the clients that publish and consume."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.clusters.spec import Spec

Rate = Annotated[float, Field(ge=0, le=1000)]


class Churn(Spec):
    """How many connections, channels, queues (classic, exclusive, not durable) and bindings are opened and closed again
    each second, from the start of the load to its end. At most 50 of each are under way at a time, so that a cluster
    which cannot keep up sees fewer; the record tells how many there were, and how many failed."""

    connections_per_s: Rate = 0
    channels_per_s: Rate = 0
    queues_per_s: Rate = 0
    bindings_per_s: Rate = 0

    @model_validator(mode="after")
    def _any(self) -> Self:
        if not any(dict(self).values()):
            raise ValueError("nothing would be opened; say how much, such as connections_per_s: 5, or leave churn out")
        return self
