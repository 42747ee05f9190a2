"""Mix the messages of a load from kinds: sizes and priorities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from rabbitmq_resilience.history.draws import Priorities, Weighted
from rabbitmq_resilience.model.base import Spec

#: AMQP has no bound. By default, brokers from 4.0 on take no larger message.
MESSAGE_BYTES_MAX = 16_777_216

MessageBytes = Annotated[int, Field(ge=24, le=MESSAGE_BYTES_MAX)]
Priority = Annotated[int, Field(ge=0, le=255)]


class MessageSize(Spec):
    """A message size and its weight. Of sizes with the weights 9 and 1, nine in ten messages have the first one."""

    message_bytes: MessageBytes
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1


class MessageKind(NamedTuple):
    """A kind of messages with one size and priority; None if they state no priority."""

    message_bytes: int
    priority: int | None


@dataclass(frozen=True)
class Mix:
    """The mix of sizes and priorities. The kind of a message depends on its publisher, its sequence and the ``seed``.

    ``sizes`` are (bytes, weight). ``priorities`` are as in ``history.draws``; () if messages state no priority.
    """

    sizes: tuple[tuple[int, int], ...]
    priorities: tuple[int, ...]
    seed: int

    @cached_property
    def kinds(self) -> Sequence[MessageKind]:
        return [MessageKind(size, priority) for size, _ in self.sizes for priority in self._priorities]

    @property
    def bytes_max(self) -> int:
        return max(size for size, _ in self.sizes)

    def of(self, publisher: int, first: int, end: int) -> list[int]:
        """Return the kinds of the messages from ``first`` to before ``end``, as indexes into ``kinds``."""
        if len(self.kinds) == 1:
            return [0] * (end - first)
        sequence = np.arange(first, end)
        kind = Weighted([weight for _, weight in self.sizes], self.seed).of(publisher, sequence)
        if self.priorities:
            priority = Priorities(self.priorities).of(publisher, sequence)
            kind = kind * len(self._priorities) + np.searchsorted(np.array(self._priorities), priority)
        chosen: list[int] = kind.tolist()
        return chosen

    @cached_property
    def _priorities(self) -> Sequence[int | None]:
        return sorted(set(self.priorities)) or [None]
