"""Route dead letters to other queues: messages that consumers reject, that expire or that queues drop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from rabbitmq_resilience.history.draws import Rejections
from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.workload.matching import DEFAULT_EXCHANGE
from rabbitmq_resilience.workload.queue_settings import QueueLimits
from rabbitmq_resilience.workload.services import Service

#: The name of this feature in ``sut.broker.versions.FEATURES``.
AT_LEAST_ONCE = "dead letters that arrive at least once"

#: The time until a broker publishes a dead letter again whose confirm was lost (RabbitMQ's
#: ``dead_letter_worker_publisher_confirm_timeout``).
AGAIN_AFTER_S = 180.0
#: With more messages than this for each rejected one, at least one is rejected.
FOR_EACH_MAX = 40

#: How many sequences are drawn together.
_BLOCK = 4096


class DeadLetters(Spec):
    """The routes of dead letters: messages that consumers reject, that expire, or that queues drop beyond their length
    (``limits``).

    - ``to``: the service whose queues take the dead letters of all other services. Publishers publish nothing to these
      queues, and ``limits`` do not apply to them.
    - ``exchange``: the exchange of ``routing`` that takes dead letters. Bindings lead from it to queues of ``to``, also
      to several of them. By default it is the default exchange; then the dead letters of the first queue go to the
      first queue of ``to``, those of the second queue to the second, and so on in turn.
    - ``routing_key``: the routing key of dead letters; by default they keep the key of their message. All dead letters
      of a queue must go to the same queues, with any of their keys. If two queues share a message, their dead letters
      must go to different queues: a delivery shows only its message and the queue that it comes from.
    - ``strategy``: ``at_most_once`` publishes dead letters without confirms, so faults may lose some of them.
      ``at_least_once`` (quorum queues, from 3.10 on) keeps each one until the other queue has confirmed it. Then all
      queues refuse messages that they cannot hold (``overflow: reject-publish``), as RabbitMQ demands. A dead letter
      whose confirm was lost is published again after 3 minutes, so give such a load ``drain_s: 240``.
    - ``reject_one_in``: consumers reject about one message in this number, such as one in 10. The choice depends only
      on a message's publisher and number, so a redelivered message is rejected again. With ``acks: early`` consumers
      reject before they process; with ``acks: automatic`` they cannot reject.

    The invariant ``dead_letters`` judges what brokers promise for dead letters.
    """

    to: Annotated[str, Field(min_length=1, max_length=100)]
    exchange: Annotated[str, Field(max_length=200)] = DEFAULT_EXCHANGE
    routing_key: Annotated[str, Field(max_length=255)] | None = None
    strategy: Literal["at_most_once", "at_least_once"] = "at_most_once"
    reject_one_in: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    def problems_of_limits(self, limits: QueueLimits | None) -> Iterator[str]:
        """Yield the reasons why queues with these limits cannot have these dead letters."""
        if self.strategy == "at_least_once" and limits is not None and limits.overflow == "drop-head":
            yield "dead_letters.strategy: at_least_once goes with overflow: reject-publish, not drop-head"
        if limits is not None and limits.expires_ms is not None:
            yield "dead_letters do not go with limits.expires_ms: messages of a queue that expires are no dead letters"
        if self.reject_one_in is None and not self.limited(limits):
            dropping = "" if self.strategy == "at_least_once" else ", or max_length with overflow: drop-head"
            yield (
                "dead_letters: there would be none; say how many messages consumers reject (reject_one_in: 10), or "
                f"state limits (message_ttl_ms{dropping})"
            )

    def limited(self, limits: QueueLimits | None) -> bool:
        """Return whether queues with these limits have dead letters that no consumer rejected."""
        if limits is None:
            return False
        return limits.message_ttl_ms is not None or (self.strategy == "at_most_once" and limits.drops)

    def rejects_none(self, *, publishers: int, messages: int) -> bool:
        """Return whether consumers would reject none of this number of messages, shared by the publishers."""
        if self.reject_one_in is None or messages > FOR_EACH_MAX * self.reject_one_in:
            return False
        drawn, each = Rejections(self.reject_one_in), np.arange(-(-messages // publishers))
        return not any(drawn.of(publisher, each).any() for publisher in range(publishers))

    def taking(self, services: Sequence[Service]) -> list[str]:
        """Return the names of the queues that take dead letters."""
        return [name for service in services if service.name == self.to for name in service.queue_names]


class Rejected:
    """Decide for one message at a time whether consumers reject it."""

    def __init__(self, one_in: int) -> None:
        drawn = Rejections(one_in)

        @lru_cache(maxsize=1024)
        def block(publisher: int, number: int) -> bytes:
            return drawn.of(publisher, np.arange(number * _BLOCK, (number + 1) * _BLOCK)).tobytes()

        self._block = block

    def __call__(self, publisher: int, sequence: int) -> bool:
        return bool(self._block(publisher, sequence // _BLOCK)[sequence % _BLOCK])
