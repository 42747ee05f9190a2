"""How queues are mirrored, and what they may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from rabbitmq_resilience.clusters.spec import Spec

#: Brokers refuse a longer time.
TIME_MAX_MS = 4_294_967_295


#: The name and the value of an argument that queues are declared with.
ArgumentName = Annotated[str, StringConstraints(pattern=r"^x-[a-z0-9]+(-[a-z0-9]+)*$", max_length=100)]
ArgumentValue = bool | int | Annotated[str, StringConstraints(max_length=200)]

#: Arguments that the harness sets itself, and the field that says so.
OWNED_ARGUMENTS: Mapping[str, str] = {
    "x-queue-type": "queue_type",
    "x-quorum-initial-group-size": "group_size",
    "x-single-active-consumer": "single_active_consumer",
    "x-max-in-memory-length": "max_in_memory_length",
    "x-max-priority": "priorities",
    "x-max-length": "limits.max_length",
    "x-overflow": "limits.overflow",
    "x-message-ttl": "limits.message_ttl_ms",
    "x-expires": "limits.expires_ms",
    "x-dead-letter-exchange": "dead_letters",
    "x-dead-letter-routing-key": "dead_letters",
    "x-dead-letter-strategy": "dead_letters.strategy",
}


def _not_owned(arguments: dict[str, ArgumentValue]) -> dict[str, ArgumentValue]:
    """Return the arguments. Raises ValueError for one that has a field of its own."""
    for name in arguments:
        if name in OWNED_ARGUMENTS:
            raise ValueError(f"{name} has a field of its own: write {OWNED_ARGUMENTS[name]}")
    return arguments


#: Arguments that not every version has, each with what it needs, as ``clusters.broker.versions.FEATURES`` calls it.
ARGUMENT_NEEDS: Mapping[str, str] = {
    "x-consumer-disconnected-timeout": "timeouts of disconnected consumers",
    "x-consumer-timeout": "consumer timeouts of single queues",
    "x-delayed-retry-type": "delayed retries",
    "x-delayed-retry-min": "delayed retries",
    "x-delayed-retry-max": "delayed retries",
    "x-queue-mode": "modes of classic queues",
    "x-queue-master-locator": "queue master locators",
}


def argument_needs(arguments: Mapping[str, ArgumentValue]) -> frozenset[str]:
    """Return what brokers must have for these arguments, as far as is known which versions have them."""
    first_store = {"the first message store of classic queues"} if arguments.get("x-queue-version") == 1 else set()
    return frozenset(ARGUMENT_NEEDS[name] for name in arguments if name in ARGUMENT_NEEDS) | first_store


#: What else queues are declared with.
Arguments = Annotated[dict[ArgumentName, ArgumentValue], AfterValidator(_not_owned)]


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
