"""What load a scenario puts on its cluster."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from rabbitmq_resilience.clusters.spec import Spec
from rabbitmq_resilience.workloads.background import Churn
from rabbitmq_resilience.workloads.consistency import problems
from rabbitmq_resilience.workloads.dead_letters import AT_LEAST_ONCE, DeadLetters
from rabbitmq_resilience.workloads.mix import MessageBytes, MessageSize, Priority
from rabbitmq_resilience.workloads.queue_settings import Arguments, Mirroring, QueueLimits, argument_needs
from rabbitmq_resilience.workloads.routing import Routing
from rabbitmq_resilience.workloads.services import (
    Consume,
    Consumers,
    Count,
    Duration,
    Processing,
    ProcessingStep,
    Service,
)
from rabbitmq_resilience.workloads.spread import Spread

RATE_MAX_PER_S = 10_000_000
QUEUES_MAX = 100_000
#: What RabbitMQ reserves, and what ``workloads.declarations`` and ``workloads.churn`` name their own.
CHURN_PREFIX = "churn-"
RESERVED_PREFIXES = ("amq.", "declared-", CHURN_PREFIX)


class RateStep(Spec):
    """A target rate and how long it holds. 0: publishers pause; null: as fast as confirms allow."""

    rate_per_s: Annotated[int, Field(ge=0, le=RATE_MAX_PER_S)] | None
    for_s: Duration


class Workload(Spec):
    """Publishers that count on confirms and consumers that acknowledge.

    A load that a publication tells of has a name: ``preset``, and is as it is here, or ``scale`` times what was
    published. What is stated beside it replaces what the preset has, whole fields at a time.

    Queues and who uses them:

    - ``queue_pattern``: how queues are named; ``%d`` is the number of a queue, from 1 (``orders-%d``: orders-1, ...).
    - Publisher i publishes to queue i modulo ``queues``, or, where there are fewer publishers than queues, to each of
      its share in turn, as ``spread`` says. Consumers likewise.
    - ``leaders_on``: the nodes over which leaders are placed in turn, as node names or ``zone:x``; empty: all nodes.
    - ``group_size``: the members of a quorum queue.
    - ``lazy``: keeps messages of classic and mirrored queues on disk (the policy ``queue-mode: lazy``). RabbitMQ has
      it from 3.6 until before 3.12, whose classic queues are all much like that; there it is refused.
    - ``single_active_consumer``: of the consumers of a queue one at a time gets messages, until it is gone. For another
      one to take over, a queue needs two. ``order: {shared_queues: judged}`` demands order over all of them.
    - ``max_in_memory_length``: how many messages a quorum queue keeps in memory. RabbitMQ heeds it from 3.8 until
      before 3.10, which never keeps any (rabbitmq-server #1970 and #3898). Later versions take both, and ignore them.
    - ``arguments``: what else queues are declared with, such as ``{x-delivery-limit: 5}``, ``x-consumer-timeout``,
      ``x-consumer-disconnected-timeout`` or ``x-queue-leader-locator``. Where it is known that a version has not one,
      nothing is played on it; any other that a broker does not know it refuses, or ignores. What it makes a queue drop
      counts as lost.
    - ``services``: applications that read queues of their own, each at its own pace. ``queues``, ``consumers`` and the
      processing are stated there then; queues and consumers are counted through, one service after another.
    - ``dead_letters``: what consumers reject, what expires and what queues drop goes on to the queues of one service.
    - ``routing``: exchanges and bindings. With it, publishers publish to what it says, in turn, rather than to queues.

    Load:

    - ``rate_per_s``: the target of all publishers together; null: as fast as confirms allow.
    - ``in_flight``: how many messages of a publisher may wait for their confirm. Without a rate, more are sent once
      half of them are confirmed, and 20 times a second.
    - ``message_sizes``: several sizes instead of ``message_bytes``, each drawn as often as its weight tells. Which
      message has which depends on the seed, its publisher and its number in the order of sending. A publisher holds
      ``in_flight`` messages at most, whatever their size.
    - ``priorities``: those that messages have, each drawn as often as it stands there: with [0, 0, 9] every third has
      priority 9, about. Classic and mirrored queues are declared with the highest as ``x-max-priority``. Quorum queues
      have priorities from 4.0 on: over 4 is high and the rest is normal, and from 4.3 on 0 to 31, each for itself.
      A high one overtakes what waits in the queue, not what a consumer holds already: ``prefetch`` bounds that.
    - ``processing_ms``: what a consumer takes for each message before it acknowledges it, one after another, as an
      application with one thread. It goes on while queues are drained, so ``drain_s`` must allow for it. (A broker
      closes the channel of a consumer that keeps a message longer than its ``consumer_timeout``, 30 minutes by
      default.)
    - ``variable_rate`` and ``variable_processing``: peaks and steps. They are values and how long each holds, played
      once, one after another, from the end of the steady phase on. Before and after them the plain values hold.
    - ``consume``: when consumers connect. With ``at_drain`` they connect when the drain begins, so that queues have no
      consumer during the load and its faults, and keep what they take; ``drain_s`` must allow for all of it.
    - ``start_spread_s``: at the start, publishers connect one after another over this time, and so do consumers. All
      clients connect before the first message is sent.
    - ``copy_every``: every so many messages of a publisher, one goes to one more queue too. Nobody reads or judges what
      is there; a confirm waits for both.
    - ``declare_every_s``: how often something new is declared, in turn through each node: a queue, a binding, a policy.

    Connections:

    - ``heartbeat_s`` is AMQP's, asked for by all clients.
    - ``confirm_timeout_s``: a publisher that waits longer for a confirm counts the message as unknown, and goes to
      another node. Time in which the broker blocks it does not count.
    - ``reconnect``: client i begins at node i modulo their number. With ``own_zone`` it goes only to nodes of that
      node's zone, so that there are clients on every side of a cut as long as it lasts.

    - ``idle_connections``: so many more connections do nothing but heartbeats, every ``idle_heartbeat_s``; they are
      there before the steady phase, over all nodes that take clients, and come back when they are lost. ``churn`` opens
      and closes what there may be many of.

    Unsafe choices, which exist to show that the suite notices:

    - ``confirms: none`` asks for no confirms. ``confirms: ignored`` asks for them and heeds none, positive or negative.
      Both count each write as confirmed.
    - ``acks: automatic`` lets the broker forget a message once it is sent. With ``acks: early`` a consumer acknowledges
      what it receives and works on it afterwards, and only what it has worked on counts as received.
    - ``persistent: false``: messages are not kept on disk.
    - ``durable: false`` (classic only, up to 4.2): a queue is gone when its node stops.
    - ``exclusive`` (classic only): consumers declare their queues when they connect, and one is gone with what it holds
      when its consumer's connection is. What was confirmed before the consumer is back may be lost.
    - ``limits`` let a queue drop what it holds. With ``redeclare`` (classic only) consumers declare their queues each
      time that they connect, as applications do whose queues expire (``limits.expires_ms``): where a consumer was away
      for that long, what was confirmed before it is back may be lost. Without it nobody declares them again.
    """

    kind: Literal["confirmed_publish"] = "confirmed_publish"
    queue_type: Literal["quorum", "mirrored", "classic"] = "quorum"
    queues: Annotated[int, Field(ge=1, le=QUEUES_MAX)] = 1
    queue_pattern: Annotated[str, Field(max_length=200)] = "q%d"
    leaders_on: tuple[str, ...] = ()
    group_size: Annotated[int, Field(ge=1, le=7)] | None = None
    mirroring: Mirroring | None = None
    lazy: bool = False
    max_in_memory_length: Annotated[int, Field(ge=0)] | None = None
    durable: bool = True
    exclusive: bool = False
    redeclare: bool = False
    limits: QueueLimits | None = None
    arguments: Arguments = Field(default_factory=dict)
    single_active_consumer: bool = False
    publishers: Count = 1
    consumers: Consumers = 1
    rate_per_s: Annotated[int, Field(ge=1, le=RATE_MAX_PER_S)] | None = 500
    variable_rate: tuple[RateStep, ...] = ()
    processing_ms: Processing = 0
    variable_processing: tuple[ProcessingStep, ...] = ()
    consume: Consume = "always"
    start_spread_s: Annotated[float, Field(ge=0, le=3600)] = 0
    in_flight: Annotated[int, Field(ge=1, le=65_535)] = 100
    prefetch: Annotated[int, Field(ge=1, le=65_535)] = 200
    ack_every: Annotated[int, Field(ge=1, le=65_535)] = 50
    message_bytes: MessageBytes = 1024
    message_sizes: Annotated[tuple[MessageSize, ...], Field(max_length=100)] = ()
    priorities: Annotated[tuple[Priority, ...], Field(max_length=100)] = ()
    copy_every: Annotated[int, Field(ge=1, le=1000)] | None = None
    confirms: Literal["awaited", "ignored", "none"] = "awaited"
    acks: Literal["manual", "automatic", "early"] = "manual"
    persistent: bool = True
    heartbeat_s: Annotated[int, Field(ge=1, le=600)] = 4
    confirm_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    reconnect: Literal["anywhere", "own_zone"] = "anywhere"
    declare_every_s: Annotated[float, Field(ge=0.05, le=3600)] | None = None
    spread: Spread = Spread()
    idle_connections: Annotated[int, Field(ge=0, le=100_000)] = 0
    idle_heartbeat_s: Annotated[int, Field(ge=1, le=600)] = 60
    churn: Churn | None = None
    services: tuple[Service, ...] = ()
    dead_letters: DeadLetters | None = None
    routing: Routing | None = None

    @field_validator("queue_pattern")
    @classmethod
    def _names_each_queue(cls, pattern: str) -> str:
        if not re.fullmatch(r"[\w.-]*%d[\w.-]*", pattern, re.ASCII):
            raise ValueError(
                f"{pattern!r} must hold %d once, where the queue's number stands, and beside it letters, digits, '_', "
                "'-' and '.' only; write it as 'orders-%d'"
            )
        if pattern.startswith(RESERVED_PREFIXES):
            raise ValueError(f"{pattern!r} begins with a name that is in use; no queue's may: {RESERVED_PREFIXES}")
        return pattern

    @model_validator(mode="after")
    def _served(self) -> Self:
        if not self.services:
            return self
        for field, total in _summed(self.services).items():
            if field in self.model_fields_set and getattr(self, field) != total:
                raise ValueError(f"{field} is {getattr(self, field)}, and the services have {total}; leave {field} out")
            self.__dict__[field] = total  # what a load is asked for, also where nobody stated it
        if self.queue_pattern != "q%d":
            raise ValueError("queue_pattern does not go with services, whose queues are called by their names")
        own = [name for name in ("processing_ms", "variable_processing") if getattr(self, name)]
        if own := [*own, *(["consume"] if self.consume != "always" else [])]:
            raise ValueError(
                f"each of the services has its own {' and '.join(own)}: write it there, not in the workload"
            )
        names = [service.name for service in self.services]
        if len(set(names)) < len(names):
            raise ValueError(f"services are called {', '.join(names)}; give each a name of its own")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for problem in problems(self):
            raise ValueError(problem)
        return self

    @property
    def needs(self) -> frozenset[str]:
        """What brokers must have for it, by the names of ``clusters.broker.versions.FEATURES``."""
        expires = self.limits is not None and self.limits.message_ttl_ms is not None
        needs = {
            AT_LEAST_ONCE: self.dead_letters is not None and self.dead_letters.strategy == "at_least_once",
            "expiry of messages in quorum queues": self.queue_type == "quorum" and expires,
            "lazy queues": self.lazy,
            "mirrored queues": self.queue_type == "mirrored",
            "priorities of quorum queues": self.queue_type == "quorum" and bool(self.priorities),
            "queues that are not durable": not (self.durable or self.exclusive),
        }
        return frozenset(name for name, needed in needs.items() if needed) | argument_needs(self.arguments)

    @property
    def owned(self) -> bool:
        """Whether each queue is declared by its one consumer, when that connects."""
        return self.exclusive or self.redeclare

    @property
    def queue_names(self) -> list[str]:
        """In index order."""
        if self.services:
            return [name for service in self.services for name in service.queue_names]
        return [self.queue_pattern.replace("%d", str(number)) for number in range(1, self.queues + 1)]

    @property
    def drained_queues(self) -> tuple[str, ...]:
        """Return the names of the queues that have no consumer before the drain, in index order."""
        late = (group.consume == "at_drain" for group in self.groups for _ in range(group.queues))
        return tuple(itertools.compress(self.queue_names, late))

    @property
    def late_consumers(self) -> frozenset[int]:
        """Return the indexes of the consumers that connect when the drain begins."""
        late = (group.consume == "at_drain" for group in self.groups for _ in range(group.consumers))
        return frozenset(itertools.compress(itertools.count(), late))

    @property
    def dead_letter_queues(self) -> Mapping[str, tuple[str, ...]]:
        """For each queue whose dead letters go on to others, those."""
        return self.dead_letters.queues_of(self) if self.dead_letters is not None else {}

    @property
    def published_queues(self) -> list[str]:
        """Those that publishers publish to, unless ``routing`` says where messages go; in index order."""
        taking = self.dead_letters.taking(self.services) if self.dead_letters is not None else ()
        return [name for name in self.queue_names if name not in taking]

    @property
    def groups(self) -> tuple[Service, ...]:
        """Who reads which queues: the services, or without any all consumers as one, of the name ''."""
        own = {name: getattr(self, name) for name in Service.model_fields if name != "name"}
        return self.services or (Service.model_construct(name="", **own),)

    @property
    def held_s(self) -> float:
        """How long a consumer holds a message at most until it is done with it: it takes one after another."""

        def longest_s(group: Service) -> float:
            slowest_ms = max([group.processing_ms, *(step.processing_ms for step in group.variable_processing)])
            return slowest_ms / 1000 * self.prefetch * math.ceil(group.queues / group.consumers)

        return max(map(longest_s, self.groups))

    @property
    def variation_s(self) -> float:
        """How long it takes until the plain values hold again."""
        processing_s = (sum(step.for_s for step in group.variable_processing) for group in self.groups)
        return max([sum(step.for_s for step in self.variable_rate), *processing_s])

    def scaled(self, factor: float) -> Self:
        """The same load, but ``factor`` times the queues, publishers, consumers and rates: at least 1 of each, but for
        a pause, which stays one. Raises ValidationError (a ValueError) where that is more than a workload may have."""
        if not factor > 0:
            raise ValueError(f"a workload cannot be scaled by {factor:g}")

        def times(value: int | None) -> int | None:
            return max(1, round(value * factor)) if value else value

        scaled = {name: times(getattr(self, name)) for name in ("queues", "publishers", "consumers", "rate_per_s")}
        steps = [dict(step) | {"rate_per_s": times(step.rate_per_s)} for step in self.variable_rate]
        services = [
            service.model_copy(update={name: times(getattr(service, name)) for name in ("queues", "consumers")})
            for service in self.services
        ]
        totals = _summed(services) if services else {}
        others = {"variable_rate": steps, "services": services}
        return type(self).model_validate(dict(self) | scaled | totals | others)


def _summed(services: Sequence[Service]) -> dict[str, int]:
    """The queues and the consumers of all of them."""
    return {name: sum(getattr(service, name) for service in services) for name in ("queues", "consumers")}
