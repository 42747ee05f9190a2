"""What load a scenario puts on its cluster."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from topologies.spec import Spec

Count = Annotated[int, Field(ge=1)]
Duration = Annotated[float, Field(gt=0, le=86_400)]
Processing = Annotated[float, Field(ge=0, le=60_000)]

RATE_MAX_PER_S = 1_000_000
#: What RabbitMQ reserves, and what ``workloads.declarations`` names its own.
RESERVED_PREFIXES = ("amq.", "declared-")


class RateStep(Spec):
    """A target rate and how long it holds. 0: publishers pause; None: as fast as confirms allow."""

    rate_per_s: Annotated[int, Field(ge=0, le=RATE_MAX_PER_S)] | None
    for_s: Duration


class ProcessingStep(Spec):
    """A time to process one message, and how long it holds."""

    processing_ms: Processing
    for_s: Duration


class Mirroring(Spec):
    """The policy of a classic mirrored queue, in RabbitMQ's own words (``ha-mode`` and so on)."""

    ha_mode: Literal["all", "exactly"] = "all"
    ha_params: Annotated[int, Field(ge=1, le=7)] | None = None
    ha_sync_mode: Literal["automatic", "manual"] = "automatic"
    ha_promote_on_failure: Literal["always", "when-synced"] = "when-synced"
    ha_promote_on_shutdown: Literal["always", "when-synced"] = "when-synced"

    @model_validator(mode="after")
    def _params(self) -> Self:
        if (self.ha_mode == "exactly") != (self.ha_params is not None):
            raise ValueError("ha_params is the number of copies: it goes with ha_mode: exactly, and only with it")
        return self


class QueueLimits(Spec):
    """What a queue may hold, and for how long, in RabbitMQ's own words (arguments ``x-max-length`` and so on):
    ``max_length`` messages, beyond which ``overflow`` drops the oldest or refuses the newest; each for
    ``message_ttl_ms`` (quorum queues from 3.10 on); and the queue itself is deleted when it had no consumer for
    ``expires_ms``."""

    max_length: Annotated[int, Field(ge=0)] | None = None
    overflow: Literal["drop-head", "reject-publish"] | None = None
    message_ttl_ms: Annotated[int, Field(ge=0)] | None = None
    expires_ms: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _overflow(self) -> Self:
        if self.overflow is not None and self.max_length is None:
            raise ValueError("overflow says what happens beyond max_length: it goes with it")
        return self

    @property
    def arguments(self) -> dict[str, object]:
        """As a queue is declared with them."""
        stated = self.model_dump(exclude_none=True)
        return {f"x-{name.removesuffix('_ms').replace('_', '-')}": value for name, value in stated.items()}


class Workload(Spec):
    """Publishers that count on confirms and consumers that acknowledge.

    Queues are named by ``queue_pattern``, whose ``%d`` is their number from 1. Publisher i publishes to queue i modulo
    ``queues`` (to each of its share in turn where there are fewer publishers than queues); consumers likewise.
    ``leaders_on`` names the nodes over which leaders are placed in turn (node names or ``zone:x``); empty means all
    nodes. ``rate_per_s`` is the target of all publishers together, None as fast as confirms allow. ``in_flight`` is the
    limit of unconfirmed messages of a publisher.
    Some choices are unsafe, and exist to show that the suite notices. ``confirms: none`` asks for no confirms, and
    ``confirms: ignored`` asks for them and heeds none, positive or negative: both count each write as confirmed.
    ``acks: automatic`` lets the broker forget a message once it is sent; with ``acks: early`` a consumer acknowledges
    what it receives and works on it afterwards, and only what it has worked on counts as received. A queue that is not
    ``durable`` (classic only) is gone when its node stops; ``limits`` let a queue drop what it holds.

    A publisher that waits longer than ``confirm_timeout_s`` for a
    confirm, the time in which the broker blocks it not counted, counts the message as unknown and goes to another node;
    ``heartbeat_s`` is AMQP's, asked for by all clients.
    Client i begins at node i modulo their number; ``reconnect: own_zone`` lets it go only to nodes of that node's zone,
    so that there are clients on every side of a cut as long as it lasts. At the start, publishers connect one after
    another over ``start_spread_s``, and so do consumers.
    Every ``copy_every``-th message of a publisher goes to one more queue too, whose messages nobody reads or judges; a
    confirm waits for both. None: no message does.
    Every ``declare_every_s`` something new is declared, in turn through each node (see ``workloads.declarations``);
    None means that nothing is.

    A consumer takes ``processing_ms`` for each message before it acknowledges it, one after another, as an application
    with one thread. Processing goes on while queues are drained, so ``drain_s`` must allow for it; where only some time
    of a run is to be slow, state that in ``variable_processing``. (A broker closes the channel of a consumer that keeps
    a message longer than its ``consumer_timeout``, 30 minutes by default.)
    ``variable_rate`` and ``variable_processing`` are peaks and steps: values and how long each holds, played once, one
    after another, from the end of the steady phase on. Before and after them the plain values hold.

    ``lazy`` keeps messages of classic and mirrored queues on disk (the policy ``queue-mode: lazy``); RabbitMQ heeds it
    from 3.6 until before 3.12, whose classic queues are all much like that. ``max_in_memory_length`` is the number of
    messages that a quorum queue keeps in memory; RabbitMQ heeds it from 3.8 until before 3.10, which never keeps any
    (rabbitmq-server #1970 and #3898). Later versions take both, and ignore them.
    """

    kind: Literal["confirmed_publish"] = "confirmed_publish"
    queue_type: Literal["quorum", "mirrored", "classic"] = "quorum"
    queues: Annotated[int, Field(ge=1, le=1000)] = 1
    queue_pattern: Annotated[str, Field(max_length=200)] = "q%d"
    leaders_on: tuple[str, ...] = ()
    group_size: Annotated[int, Field(ge=1, le=7)] | None = None
    mirroring: Mirroring | None = None
    lazy: bool = False
    max_in_memory_length: Annotated[int, Field(ge=0)] | None = None
    durable: bool = True
    limits: QueueLimits | None = None
    publishers: Count = 1
    consumers: Count = 1
    rate_per_s: Annotated[int, Field(ge=1, le=RATE_MAX_PER_S)] | None = 500
    variable_rate: tuple[RateStep, ...] = ()
    processing_ms: Processing = 0
    variable_processing: tuple[ProcessingStep, ...] = ()
    start_spread_s: Annotated[float, Field(ge=0, le=3600)] = 0
    in_flight: Annotated[int, Field(ge=1, le=65_535)] = 100
    prefetch: Annotated[int, Field(ge=1, le=65_535)] = 200
    ack_every: Annotated[int, Field(ge=1, le=65_535)] = 50
    message_bytes: Annotated[int, Field(ge=24, le=16_777_216)] = 1024
    copy_every: Annotated[int, Field(ge=1, le=1000)] | None = None
    confirms: Literal["awaited", "ignored", "none"] = "awaited"
    acks: Literal["manual", "automatic", "early"] = "manual"
    persistent: bool = True
    heartbeat_s: Annotated[int, Field(ge=1, le=600)] = 4
    confirm_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    reconnect: Literal["anywhere", "own_zone"] = "anywhere"
    declare_every_s: Annotated[float, Field(ge=0.05, le=3600)] | None = None

    @field_validator("queue_pattern")
    @classmethod
    def _names_each_queue(cls, pattern: str) -> str:
        if not re.fullmatch(r"[\w.-]*%d[\w.-]*", pattern, re.ASCII):
            raise ValueError(
                f"{pattern!r} must hold %d once, where the queue's number stands, and beside it letters, digits, '_', "
                "'-' and '.' only; write it as 'orders-%d'"
            )
        if pattern.startswith(RESERVED_PREFIXES):
            raise ValueError(f"{pattern!r} begins with a name that is in use; no queue's may: {RESERVED_PREFIXES}")
        return pattern

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.queue_type != "mirrored" and self.mirroring is not None:
            raise ValueError("mirroring goes with queue_type: mirrored")
        if self.queue_type != "quorum" and self.group_size is not None:
            raise ValueError("group_size goes with queue_type: quorum")
        if self.queue_type == "quorum" and self.lazy:
            raise ValueError("lazy goes with queue_type: classic or mirrored; quorum has max_in_memory_length")
        if self.queue_type != "quorum" and self.max_in_memory_length is not None:
            raise ValueError("max_in_memory_length goes with queue_type: quorum; classic and mirrored have lazy")
        if self.queue_type != "classic" and not self.durable:
            raise ValueError("durable: false goes with queue_type: classic; others are durable always")
        if self.acks == "early" and not (self.processing_ms or self.variable_processing):
            raise ValueError("acks: early comes before the work: say how long that takes, in processing_ms")
        if self.acks == "automatic" and (self.processing_ms or self.variable_processing):
            raise ValueError("processing takes time before the acknowledgement: with acks: automatic there is none")
        if self.ack_every > self.prefetch:
            raise ValueError("ack_every is over prefetch: the consumer would wait for ever")
        return self

    @property
    def variation_s(self) -> float:
        """How long it takes until the plain values hold again."""
        return max(sum(step.for_s for step in steps) for steps in (self.variable_rate, self.variable_processing))

    def scaled(self, factor: float) -> Self:
        """The same load, but ``factor`` times the queues, publishers, consumers and rates: at least 1 of each, but for
        a pause, which stays one. Raises ValidationError (a ValueError) where that is more than a workload may have."""
        if not factor > 0:
            raise ValueError(f"a workload cannot be scaled by {factor:g}")

        def times(value: int | None) -> int | None:
            return max(1, round(value * factor)) if value else value

        scaled = {name: times(getattr(self, name)) for name in ("queues", "publishers", "consumers", "rate_per_s")}
        steps = [dict(step) | {"rate_per_s": times(step.rate_per_s)} for step in self.variable_rate]
        return type(self).model_validate(dict(self) | scaled | {"variable_rate": steps})
