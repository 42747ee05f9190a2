"""Messages that are published again, to other queues: what consumers reject, what expires and what queues drop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from rabbitmq_resilience.clusters.spec import Spec
from rabbitmq_resilience.record.draws import Rejections
from rabbitmq_resilience.workloads.matching import DEFAULT_EXCHANGE, Reached
from rabbitmq_resilience.workloads.services import Service

if TYPE_CHECKING:
    from rabbitmq_resilience.workloads.queue_settings import QueueLimits
    from rabbitmq_resilience.workloads.routing import Routing
    from rabbitmq_resilience.workloads.spec import Workload

#: As ``clusters.broker.versions.FEATURES`` calls it.
AT_LEAST_ONCE = "dead letters that arrive at least once"

#: When a dead letter whose confirm was lost is published again (RabbitMQ's
#: ``dead_letter_worker_publisher_confirm_timeout``).
AGAIN_AFTER_S = 180.0
#: Of more messages for each that is rejected, one is.
FOR_EACH_MAX = 40

#: Sequences that are drawn together.
_BLOCK = 4096


class DeadLetters(Spec):
    """Where the queues of all services send their dead letters: what their consumers reject, what expires, and what
    they drop beyond their length (``limits``).

    - ``to``: the service whose queues take the dead letters of all others. Publishers publish nothing to them, and
      ``limits`` are none of theirs.
    - ``exchange``: that of ``routing`` which takes them; bindings lead on to the queues of ``to``, to several of them
      if you like. By default it is the default exchange, and the first queue's go to the first one of ``to``, in turn.
    - ``routing_key``: what they have instead of the routing key of their message, which they keep otherwise. Whatever
      keys its messages have, a queue's dead letters must go to the same queues, and those of two queues that share a
      message to different ones: what arrives tells nothing but the message and the queue that it comes from.
    - ``strategy``: ``at_most_once`` publishes them without confirms, so that some are lost where something breaks.
      ``at_least_once`` (quorum queues, from 3.10 on) keeps each until the other queue has confirmed it. All queues
      refuse then (``overflow: reject-publish``) what they cannot hold, as RabbitMQ demands it. One whose confirm was
      lost is published again after 3 minutes, so give such a load ``drain_s: 240``.
    - ``reject_one_in``: consumers reject so many messages, one in 10 about. Which ones depends on their publishers and
      numbers alone, so that what comes again is rejected again. With ``acks: early`` they reject before they work, and
      with ``acks: automatic`` they cannot.

    The invariant ``dead_letters`` judges what is promised of them.
    """

    to: Annotated[str, Field(min_length=1, max_length=100)]
    exchange: Annotated[str, Field(max_length=200)] = DEFAULT_EXCHANGE
    routing_key: Annotated[str, Field(max_length=255)] | None = None
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
        if self.exchange == DEFAULT_EXCHANGE and 2 * taking > workload.queues:
            yield (
                f"dead_letters.to: {self.to} has {taking} queues and the others {workload.queues - taking}: some would "
                "take the dead letters of none; have no more of them"
            )
        if workload.copy_every is not None:
            yield "dead_letters do not go with copy_every, whose copies nobody reads"
        if workload.acks == "automatic" and self.reject_one_in is not None:
            yield "dead_letters.reject_one_in does not go with acks: automatic, where nobody answers: leave one out"
        if workload.confirms != "awaited":
            yield f"dead_letters do not go with confirms: {workload.confirms}: what a queue refused might have expired"
        if self.strategy == "at_least_once" and workload.queue_type != "quorum":
            yield f"dead_letters.strategy: at_least_once goes with queue_type: quorum, not {workload.queue_type}"
        yield from self._problems_of_limits(workload.limits)
        if self.to in names:
            yield from self._problems_of_ways(workload)

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

    def _problems_of_ways(self, workload: Workload) -> Iterator[str]:
        routing = workload.routing
        exchanges = [one.name for one in routing.exchanges] if routing is not None else []
        if self.exchange == DEFAULT_EXCHANGE and self.routing_key is not None:
            yield "dead_letters.routing_key goes with an exchange: by the default one it is the name of a queue"
        elif self.exchange != DEFAULT_EXCHANGE and self.exchange not in exchanges:
            known = ", ".join(exchanges) or "none: state them in routing, with bindings to the queues that take them"
            yield f"dead_letters.exchange: {self.exchange} is none of the exchanges of routing; they are {known}"
        else:
            yield from _troubles(self.ways(workload), self.taking(workload.services), workload)

    def rejects_none(self, *, publishers: int, messages: int) -> bool:
        """Whether consumers would reject none of so many messages, which publishers share."""
        if self.reject_one_in is None or messages > FOR_EACH_MAX * self.reject_one_in:
            return False
        drawn, each = Rejections(self.reject_one_in), np.arange(-(-messages // publishers))
        return not any(drawn.of(publisher, each).any() for publisher in range(publishers))

    def taking(self, services: Sequence[Service]) -> list[str]:
        """The queues that take them."""
        return [name for service in services if service.name == self.to for name in service.queue_names]

    def ways(self, workload: Workload) -> Mapping[str, set[Reached]]:
        """For each queue of the others where its dead letters go, by all that its messages are published with."""
        taking, routing = self.taking(workload.services), workload.routing
        others = [name for name in workload.queue_names if name not in taking]
        if self.exchange == DEFAULT_EXCHANGE or routing is None:
            return {name: {Reached(frozenset({taking[n % len(taking)]}))} for n, name in enumerate(others)}
        found: dict[str, set[Reached]] = {name: set() for name in others}
        router = routing.router(workload.queue_names)
        for turn, queues in zip(routing.turns, routing.may_take(workload.queue_names), strict=True):
            key = turn.routing_key if self.routing_key is None else self.routing_key
            for queue in queues & found.keys():
                found[queue].add(router.reached(self.exchange, key, turn.headers))
        return found

    def queues_of(self, workload: Workload) -> Mapping[str, tuple[str, ...]]:
        """For each queue that messages come to, those that take its dead letters, in the order of their names."""
        return {name: tuple(sorted(way.queues)) for name, ways in self.ways(workload).items() for way in ways}

    def arguments(self, workload: Workload, queue: str) -> dict[str, object]:
        """What a queue is declared with for its dead letters to be taken."""
        named: dict[str, object] = {"x-dead-letter-exchange": self.exchange}
        key = self.routing_key
        if self.exchange == DEFAULT_EXCHANGE:
            (key,) = self.queues_of(workload)[queue]
        if key is not None:
            named["x-dead-letter-routing-key"] = key
        if self.strategy == "at_least_once":
            named |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
        return named


def _troubles(ways: Mapping[str, set[Reached]], taking: Sequence[str], workload: Workload) -> Iterator[str]:
    """Why it would not be known of each dead letter where it must arrive, or where it comes from. ``ways``: see
    ``DeadLetters.ways``."""
    for queue, its in ways.items():
        if len(its) > 1:
            yield (
                f"dead_letters: those of {queue} would go to different queues by the routing keys of its messages; "
                "give them one (dead_letters.routing_key), or bind all keys alike"
            )
        elif any(way.shards or not way.queues or way.queues - {*taking} for way in its):
            (way,) = its
            there = ", ".join(sorted([*way.queues, *way.shards])) or "no queue, so that they would be dropped"
            yield f"dead_letters: those of {queue} would go to {there}; let them go to some of {', '.join(taking)}"
    if workload.routing is None:
        return
    queues_of = {queue: way.queues for queue, its in ways.items() for way in its}
    for group in workload.routing.shards(workload.queue_names).values():
        if len({queues_of.get(queue) for queue in group}) > 1:
            yield f"dead_letters: those of the shards {', '.join(group)} must all go to the same queues"
    for turn, queues in zip(workload.routing.turns, workload.routing.may_take(workload.queue_names), strict=True):
        if published := sorted(queues & {*taking}):
            yield f"routing: {turn.routing_key!r} leads to {published[0]}, which takes dead letters and nothing else"
    yield from _mixed_up(queues_of, workload.routing, workload.queue_names)


def _mixed_up(queues_of: Mapping[str, frozenset[str]], routing: Routing, names: Sequence[str]) -> Iterator[str]:
    """Two queues of one message (and not of one consistent hash exchange) that share a queue of dead letters."""
    group_of = {queue: name for name, group in routing.shards(names).items() for queue in group}
    pairs = {pair for queues in routing.may_take(names) for pair in itertools.combinations(sorted(queues), 2)}
    for one, other in sorted(pairs):
        both = queues_of.get(one, frozenset()) & queues_of.get(other, frozenset())
        if both and group_of.get(one, one) != group_of.get(other, other):
            yield (
                f"dead_letters: a message goes to {one} and to {other}, and {min(both)} would take the dead letters of "
                "both, none of which tells where it comes from; let them go to different queues"
            )


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
