"""State the fields of a workload, and what follows from each by itself."""

from __future__ import annotations

import itertools
import math
import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.workload.dead_lettering import AT_LEAST_ONCE, DeadLetters
from rabbitmq_resilience.workload.parts import BackgroundPart, ConsumerPart, PublisherPart
from rabbitmq_resilience.workload.queue_settings import Arguments, Mirroring, QueueLimits, argument_needs
from rabbitmq_resilience.workload.routing import Routing
from rabbitmq_resilience.workload.services import Service
from rabbitmq_resilience.workload.workload_base import WorkloadBase

QUEUES_MAX = 100_000
#: Prefixes that RabbitMQ reserves, and those of ``workload.declarations`` and ``workload.churn``.
CHURN_PREFIX = "churn-"
RESERVED_PREFIXES = ("amq.", "declared-", CHURN_PREFIX)


class QueuePart(Spec):
    """The queues of a workload, and how messages get into them; ``Workload`` describes the fields."""

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
    dead_letters: DeadLetters | None = None
    routing: Routing | None = None

    @field_validator("queue_pattern")
    @classmethod
    def _names_each_queue(cls, pattern: str) -> str:
        if not re.fullmatch(r"[\w.-]*%d[\w.-]*", pattern, re.ASCII):
            raise ValueError(
                f"{pattern!r} must hold %d once, for the queue's number, and otherwise only letters, digits, '_', '-' "
                "and '.'; write it as 'orders-%d'"
            )
        if pattern.startswith(RESERVED_PREFIXES):
            raise ValueError(f"{pattern!r} begins with a reserved name; names of queues must not: {RESERVED_PREFIXES}")
        return pattern


class WorkloadFields(BackgroundPart, ConsumerPart, PublisherPart, QueuePart, WorkloadBase):
    """The fields of a workload, not checked against each other; ``Workload`` describes them."""

    #: What needs to know how messages are made.
    own_invariants = frozenset({"metadata", "dead_letters", "single_active_consumer", "flow", "held_back"})

    kind: Literal["confirmed_publish"] = "confirmed_publish"

    @property
    def needs(self) -> frozenset[str]:
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
    def plugins(self) -> frozenset[str]:
        return frozenset() if self.routing is None else frozenset(self.routing.plugins)

    @property
    def clients(self) -> list[str]:
        publishers = [f"publisher:{i}" for i in range(self.publishers)]
        return [*publishers, *(f"consumer:{i}" for i in range(self.consumers))]

    @property
    def takes_turns(self) -> bool:
        return self.single_active_consumer

    @property
    def confirms_within_s(self) -> float | None:
        return self.confirm_timeout_s if self.confirms == "awaited" else None

    @property
    def heartbeat_interval_s(self) -> float:
        return self.heartbeat_s

    def client_problem(self, client: str) -> str:
        role, _, number = client.partition(":")
        there = {"publisher": self.publishers, "consumer": self.consumers}.get(role)
        if there is None or not number.isdecimal() or str(int(number)) != number:
            return f"{client!r} is no client; write it as publisher:0 or consumer:0"
        if int(number) >= there:
            return f"{client} is not there: the workload has {there} {role}s, from {role}:0 on"
        if role == "consumer" and int(number) in self.late_consumers:
            return f"{client} connects when the drain begins (consume: at_drain), after all faults"
        return ""

    def emptying_problem(self, queue: str) -> str:
        if self.exclusive:
            return "only the consumers that own exclusive queues may act on them; take another step"
        if self.dead_letters is not None and queue in self.dead_letters.taking(self.services):
            text = f"{queue} takes dead letters: those that the step drops would count as lost by brokers"
            return f"{text}; take a queue that publishers publish to"
        return self.queue_problem(queue)

    def deleting_problem(self, queue: str) -> str:
        if self.routing is not None:
            return f"{queue} would be declared again without its bindings (routing); take purge_queue"
        return self.emptying_problem(queue)

    @property
    def owned(self) -> bool:
        """Return whether the one consumer of each queue declares it when it connects."""
        return self.exclusive or self.redeclare

    @property
    def queue_names(self) -> list[str]:
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
    def groups(self) -> tuple[Service, ...]:
        """Return the services, or without any one service with the name '', all queues and all consumers."""
        return self.by_service(self.queues)

    @property
    def held_s(self) -> float:
        """Return the longest time that a consumer holds a message before it has processed it, one after another."""

        def longest_s(group: Service) -> float:
            slowest_ms = max([group.processing_ms, *(step.processing_ms for step in group.variable_processing)])
            return slowest_ms / 1000 * self.prefetch * math.ceil(group.queues / group.consumers)

        return max(map(longest_s, self.groups))

    @property
    def variation_s(self) -> float:
        processing_s = (sum(step.for_s for step in group.variable_processing) for group in self.groups)
        return max([sum(step.for_s for step in self.variable_rate), *processing_s])

    @property
    def published_queues(self) -> list[str]:
        """Return the queues that publishers publish to if there is no ``routing``, in index order."""
        taking = self.dead_letters.taking(self.services) if self.dead_letters is not None else ()
        return [name for name in self.queue_names if name not in taking]
