"""Describe how one publisher spreads its messages over its queues and over the channels of its connection."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from rabbitmq_resilience.model.base import Spec

#: How many channels RabbitMQ allows a connection by default (``channel_max``).
CHANNELS_MAX = 2047


class Spread(Spec):
    """The spread of a publisher's messages over its queues.

    - ``channel``: ``one`` publishes to all queues on one channel. ``per_queue`` uses a channel for each queue; then
      brokers need a third less CPU for a message (four publishers, 100 queues). ``in_flight`` is the limit for all
      channels of a publisher together.
    - ``run``: how many messages in a row go to one queue before the next queue has its turn.
    """

    channel: Literal["one", "per_queue"] = "one"
    run: Annotated[int, Field(ge=1, le=1_000_000)] = 1

    def problem(self, *, queues: int, publishers: int) -> str:
        """Return why this number of queues and publishers cannot have this spread; '' if they can."""
        channels = math.ceil(queues / publishers) if self.channel == "per_queue" else 1
        if channels <= CHANNELS_MAX:
            return ""
        each = f"{channels} channels ({queues} queues, {publishers} publishers)"
        return (
            f"spread.channel: per_queue gives a publisher {each}, and RabbitMQ lets a connection have {CHANNELS_MAX}; "
            "have more publishers"
        )
