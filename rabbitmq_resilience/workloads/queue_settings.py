"""How queues are mirrored, and what they may hold."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.clusters.spec import Spec

#: Brokers refuse a longer time.
TIME_MAX_MS = 4_294_967_295


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

    max_length: Annotated[int, Field(ge=1)] | None = None
    overflow: Literal["drop-head", "reject-publish"] | None = None
    message_ttl_ms: Annotated[int, Field(ge=0, le=TIME_MAX_MS)] | None = None
    expires_ms: Annotated[int, Field(ge=1, le=TIME_MAX_MS)] | None = None

    @model_validator(mode="after")
    def _overflow(self) -> Self:
        if self.overflow is not None and self.max_length is None:
            raise ValueError("overflow says what happens beyond max_length: it goes with it")
        return self

    @property
    def drops(self) -> bool:
        """Whether a queue that is full drops a message which it took before."""
        return self.max_length is not None and self.overflow != "reject-publish"

    @property
    def arguments(self) -> dict[str, object]:
        """As a queue is declared with them."""
        stated = self.model_dump(exclude_none=True)
        return {f"x-{name.removesuffix('_ms').replace('_', '-')}": value for name, value in stated.items()}
