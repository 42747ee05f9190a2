"""Describe the parts of a workload that go on during a run: who publishes, who consumes, and what else connects.

A scenario states them, and the running load has them, each with the same fields. ``workload_model.Workload`` describes
the fields.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.workload.background import Churn
from rabbitmq_resilience.workload.mix import MessageBytes, MessageSize, Priority
from rabbitmq_resilience.workload.services import (
    Consume,
    Consumers,
    Count,
    Duration,
    Processing,
    ProcessingStep,
    Service,
)
from rabbitmq_resilience.workload.spread import Spread
from rabbitmq_resilience.workload.workload_base import CONFIRM_TIMEOUT_S, HEARTBEAT_S

RATE_MAX_PER_S = 10_000_000


class RateStep(Spec):
    """A target rate and how long it applies. 0: publishers pause; null: as fast as confirms allow."""

    rate_per_s: Annotated[int, Field(ge=0, le=RATE_MAX_PER_S)] | None
    for_s: Duration


class PublisherPart(Spec):
    """The publishers of a load, and what they send."""

    publishers: Count = 1
    rate_per_s: Annotated[int, Field(ge=1, le=RATE_MAX_PER_S)] | None = 500
    variable_rate: tuple[RateStep, ...] = ()
    in_flight: Annotated[int, Field(ge=1, le=65_535)] = 100
    confirms: Literal["awaited", "ignored", "none"] = "awaited"
    confirm_timeout_s: Annotated[float, Field(gt=0, le=3600)] = CONFIRM_TIMEOUT_S
    persistent: bool = True
    message_bytes: MessageBytes = 1024
    message_sizes: Annotated[tuple[MessageSize, ...], Field(max_length=100)] = ()
    priorities: Annotated[tuple[Priority, ...], Field(max_length=100)] = ()
    copy_every: Annotated[int, Field(ge=1, le=1000)] | None = None
    spread: Spread = Spread()


class ConsumerPart(Spec):
    """The consumers of a load, and how they work."""

    consumers: Consumers = 1
    prefetch: Annotated[int, Field(ge=1, le=65_535)] = 200
    acks: Literal["manual", "automatic", "early"] = "manual"
    ack_every: Annotated[int, Field(ge=1, le=65_535)] = 50
    processing_ms: Processing = 0
    variable_processing: tuple[ProcessingStep, ...] = ()
    consume: Consume = "always"
    services: tuple[Service, ...] = ()

    def by_service(self, queues: int) -> tuple[Service, ...]:
        """Return the services, or without any one service with the name '', all ``queues`` and all consumers."""
        own = {name: getattr(self, name) for name in Service.model_fields.keys() & ConsumerPart.model_fields.keys()}
        return self.services or (Service.model_construct(name="", queues=queues, **own),)


class BackgroundPart(Spec):
    """How clients connect, and what goes on in addition to publishing and consuming."""

    heartbeat_s: Annotated[int, Field(ge=1, le=600)] = HEARTBEAT_S
    reconnect: Literal["anywhere", "own_zone"] = "anywhere"
    start_spread_s: Annotated[float, Field(ge=0, le=3600)] = 0
    declare_every_s: Annotated[float, Field(ge=0.05, le=3600)] | None = None
    idle_connections: Annotated[int, Field(ge=0, le=100_000)] = 0
    idle_heartbeat_s: Annotated[int, Field(ge=1, le=600)] = 60
    churn: Churn | None = None
