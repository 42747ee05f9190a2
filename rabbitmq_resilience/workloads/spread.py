"""How the messages of one publisher spread over its queues, and over the channels of its connection."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from rabbitmq_resilience.clusters.spec import Spec

#: What RabbitMQ lets a connection have by default (``channel_max``).
CHANNELS_MAX = 2047


class Spread(Spec):
    """How the messages of a publisher spread over its queues.

    - ``channel``: ``one`` publishes to all of its queues on one channel, ``per_queue`` has a channel for each, with
      which brokers need a third less CPU for a message (four publishers, 100 queues). ``in_flight`` is for all channels
      of a publisher together.
    - ``run``: how many messages in a row go to one queue before the next one has its turn.
    """

    channel: Literal["one", "per_queue"] = "one"
    run: Annotated[int, Field(ge=1, le=1_000_000)] = 1

    def problem(self, *, queues: int, publishers: int) -> str:
        """Why a load of so many cannot be spread so; empty if it can."""
        channels = math.ceil(queues / publishers) if self.channel == "per_queue" else 1
        if channels <= CHANNELS_MAX:
            return ""
        each = f"{channels} channels ({queues} queues, {publishers} publishers)"
        return (
            f"spread.channel: per_queue gives a publisher {each}, and RabbitMQ lets a connection have {CHANNELS_MAX}; "
            "have more publishers"
        )
