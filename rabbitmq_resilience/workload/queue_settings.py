"""Describe the settings of queues: arguments, mirroring and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from rabbitmq_resilience.model.base import Spec

#: Brokers refuse a longer time.
TIME_MAX_MS = 4_294_967_295


#: The name and the value of an argument that queues are declared with.
ArgumentName = Annotated[str, StringConstraints(pattern=r"^x-[a-z0-9]+(-[a-z0-9]+)*$", max_length=100)]
ArgumentValue = bool | int | Annotated[str, StringConstraints(max_length=200)]

#: Arguments that the harness sets itself, each with the field that it comes from.
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
    """Return the arguments. Raise ValueError for an argument that has a field of its own."""
    for name in arguments:
        if name in OWNED_ARGUMENTS:
            raise ValueError(f"{name} has a field of its own: write {OWNED_ARGUMENTS[name]}")
    return arguments


#: Arguments that not every version has, each with the feature that it needs (``sut.broker.versions.FEATURES``).
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
    """Return the features that brokers must have for these arguments, if it is known which versions have them."""
    first_store = {"the first message store of classic queues"} if arguments.get("x-queue-version") == 1 else set()
    return frozenset(ARGUMENT_NEEDS[name] for name in arguments if name in ARGUMENT_NEEDS) | first_store


#: Further arguments that queues are declared with.
Arguments = Annotated[dict[ArgumentName, ArgumentValue], AfterValidator(_not_owned)]


class Mirroring(Spec):
    """The policy of classic mirrored queues, in RabbitMQ's own words (``ha-mode`` and so on)."""

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
    """Limits of a queue, in RabbitMQ's own words (arguments ``x-max-length`` and so on). A queue holds up to
    ``max_length`` messages; beyond that, ``overflow`` drops the oldest or refuses the newest. It holds each message for
    ``message_ttl_ms`` (quorum queues from 3.10 on). A queue without a consumer for ``expires_ms`` is deleted."""

    max_length: Annotated[int, Field(ge=1)] | None = None
    overflow: Literal["drop-head", "reject-publish"] | None = None
    message_ttl_ms: Annotated[int, Field(ge=0, le=TIME_MAX_MS)] | None = None
    expires_ms: Annotated[int, Field(ge=1, le=TIME_MAX_MS)] | None = None

    @model_validator(mode="after")
    def _overflow(self) -> Self:
        if self.overflow is not None and self.max_length is None:
            raise ValueError("overflow goes with max_length: it says what happens to messages beyond max_length")
        return self

    @property
    def drops(self) -> bool:
        """Return whether a full queue drops a message that it took before."""
        return self.max_length is not None and self.overflow != "reject-publish"

    @property
    def arguments(self) -> dict[str, object]:
        """Return the arguments to declare a queue with."""
        stated = self.model_dump(exclude_none=True)
        return {f"x-{name.removesuffix('_ms').replace('_', '-')}": value for name, value in stated.items()}
