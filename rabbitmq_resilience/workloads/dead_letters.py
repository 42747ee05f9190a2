"""Messages that are published again, to other queues: what consumers reject, what expires and what queues drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from rabbitmq_resilience.clusters.spec import Spec
from rabbitmq_resilience.record.draws import Rejections
from rabbitmq_resilience.workloads.services import Service

if TYPE_CHECKING:
    from rabbitmq_resilience.workloads.queue_settings import QueueLimits
    from rabbitmq_resilience.workloads.spec import Workload

#: As ``clusters.broker.versions.FEATURES`` calls it.
AT_LEAST_ONCE = "dead letters that arrive at least once"

#: Sequences that are drawn together.
_BLOCK = 4096


class DeadLetters(Spec):
    """Where the queues of all services send their dead letters: what their consumers reject, what expires, and what
    they drop beyond their length (``limits``), by the default exchange.

    - ``to``: the service whose queues take the dead letters of all others, the first queue to the first one, in turn.
      Publishers publish nothing to them, and ``limits`` are none of theirs.
    - ``strategy``: ``at_most_once`` publishes them without confirms, so that some are lost where something breaks.
      ``at_least_once`` (quorum queues, from 3.10 on) keeps each until the other queue has confirmed it. All queues
      refuse then (``overflow: reject-publish``) what they cannot hold, as RabbitMQ demands it. One whose confirm was
      lost is published again after 3 minutes, so give such a load ``drain_s: 240``.
    - ``reject_one_in``: consumers reject so many messages, one in 10 about. Which ones depends on their publishers and
      numbers alone, so that what comes again is rejected again.

    The invariant ``dead_letters`` judges what is promised of them.
    """

    to: Annotated[str, Field(min_length=1, max_length=100)]
    strategy: Literal["at_most_once", "at_least_once"] = "at_most_once"
    reject_one_in: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    def problems(self, workload: Workload) -> Iterator[str]:
        """Why the load cannot have them."""
        names = [service.name for service in workload.services]
        if self.to not in names:
            known = ", ".join(names) if names else "none: state services, one of them for the dead letters"
            yield f"dead_letters.to: {self.to} is none of the services; they are {known}"
        elif len(names) == 1:
            yield f"dead_letters.to: {self.to} is the only service; the messages are published to another one"
        taking = sum(service.queues for service in workload.services if service.name == self.to)
        if 2 * taking > workload.queues:
            yield (
                f"dead_letters.to: {self.to} has {taking} queues and the others {workload.queues - taking}: some would "
                "take the dead letters of none; have no more of them"
            )
        if workload.routing is not None:
            yield "dead_letters do not go with routing, where a message would be a dead letter of each of its queues"
        if workload.copy_every is not None:
            yield "dead_letters do not go with copy_every, whose copies nobody reads"
        if workload.acks != "manual":
            yield f"dead_letters do not go with acks: {workload.acks}: what a consumer lost might have been rejected"
        if workload.confirms != "awaited":
            yield f"dead_letters do not go with confirms: {workload.confirms}: what a queue refused might have expired"
        if self.strategy == "at_least_once" and workload.queue_type != "quorum":
            yield f"dead_letters.strategy: at_least_once goes with queue_type: quorum, not {workload.queue_type}"
        yield from self._problems_of_limits(workload.limits)

    def _problems_of_limits(self, limits: QueueLimits | None) -> Iterator[str]:
        if self.strategy == "at_least_once" and limits is not None and limits.overflow == "drop-head":
            yield "dead_letters.strategy: at_least_once goes with overflow: reject-publish, not drop-head"
        if limits is not None and limits.expires_ms is not None:
            yield "dead_letters do not go with limits.expires_ms: what is in a queue that expires is no dead letter"
        if self.reject_one_in is None and not self.limited(limits):
            dropping = "" if self.strategy == "at_least_once" else ", or max_length with overflow: drop-head"
            yield (
                "dead_letters: nothing becomes one; say how many messages consumers reject (reject_one_in: 10), or "
                f"state limits (message_ttl_ms{dropping})"
            )

    def limited(self, limits: QueueLimits | None) -> bool:
        """Whether queues with these limits have dead letters that nobody rejected."""
        if limits is None:
            return False
        return limits.message_ttl_ms is not None or (self.strategy == "at_most_once" and limits.drops)

    def queue_of(self, services: Sequence[Service]) -> Mapping[str, str]:
        """For each queue that publishers publish to, the one that takes its dead letters."""
        taking = next(service.queue_names for service in services if service.name == self.to)
        others = [name for service in services if service.name != self.to for name in service.queue_names]
        return {name: taking[number % len(taking)] for number, name in enumerate(others)}

    def arguments(self, queue: str) -> dict[str, object]:
        """What a queue is declared with whose dead letters go to ``queue``."""
        named: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
        if self.strategy == "at_least_once":
            named |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
        return named


class Rejected:
    """Which messages consumers reject, asked one at a time."""

    def __init__(self, one_in: int) -> None:
        drawn = Rejections(one_in)

        @lru_cache(maxsize=1024)
        def block(publisher: int, number: int) -> bytes:
            return drawn.of(publisher, np.arange(number * _BLOCK, (number + 1) * _BLOCK)).tobytes()

        self._block = block

    def __call__(self, publisher: int, sequence: int) -> bool:
        return bool(self._block(publisher, sequence // _BLOCK)[sequence % _BLOCK])
