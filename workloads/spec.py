"""What load a scenario puts on its cluster."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from topologies.spec import Spec

Count = Annotated[int, Field(ge=1)]


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


class Workload(Spec):
    """Publishers that count on confirms and consumers that acknowledge.

    Queues are named ``q1`` to ``qN``. Publisher i publishes to queue i modulo ``queues`` (to each of its
    share in turn where there are fewer publishers than queues); consumers likewise. ``leaders_on`` names the nodes over
    which leaders are placed in turn (node names or ``zone:x``); empty means all nodes. ``rate_per_s`` is
    the target of all publishers together, None as fast as confirms allow. ``in_flight`` is the limit of
    unconfirmed messages of a publisher. ``confirms: ignored`` publishes without confirms and counts each
    write as confirmed; ``acks: automatic`` lets the broker forget a message once it is sent: both are
    unsafe, and exist to show that the suite notices. A publisher that waits longer than ``confirm_timeout_s`` for a
    confirm counts the message as unknown and goes to another node; ``heartbeat_s`` is AMQP's, asked for by all clients.
    Client i begins at node i modulo their number; ``reconnect: own_zone`` lets it go only to nodes of that node's zone,
    so that there are clients on every side of a cut as long as it lasts.
    Every ``declare_every_s`` something new is declared, in turn through each node (see ``workloads.declarations``);
    None means that nothing is.
    """

    kind: Literal["confirmed_publish"] = "confirmed_publish"
    queue_type: Literal["quorum", "mirrored", "classic"] = "quorum"
    queues: Annotated[int, Field(ge=1, le=1000)] = 1
    leaders_on: tuple[str, ...] = ()
    group_size: Annotated[int, Field(ge=1, le=7)] | None = None
    mirroring: Mirroring | None = None
    publishers: Count = 1
    consumers: Count = 1
    rate_per_s: Annotated[int, Field(ge=1, le=1_000_000)] | None = 500
    in_flight: Annotated[int, Field(ge=1, le=65_535)] = 100
    prefetch: Annotated[int, Field(ge=1, le=65_535)] = 200
    ack_every: Annotated[int, Field(ge=1, le=65_535)] = 50
    message_bytes: Annotated[int, Field(ge=24, le=16_777_216)] = 1024
    confirms: Literal["awaited", "ignored"] = "awaited"
    acks: Literal["manual", "automatic"] = "manual"
    persistent: bool = True
    heartbeat_s: Annotated[int, Field(ge=1, le=600)] = 4
    confirm_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    reconnect: Literal["anywhere", "own_zone"] = "anywhere"
    declare_every_s: Annotated[float, Field(ge=0.05, le=3600)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.queue_type != "mirrored" and self.mirroring is not None:
            raise ValueError("mirroring goes with queue_type: mirrored")
        if self.queue_type != "quorum" and self.group_size is not None:
            raise ValueError("group_size goes with queue_type: quorum")
        if self.ack_every > self.prefetch:
            raise ValueError("ack_every is over prefetch: the consumer would wait for ever")
        return self
