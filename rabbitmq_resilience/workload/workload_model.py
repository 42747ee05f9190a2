"""Describe the load that a scenario puts on its cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import model_validator

from rabbitmq_resilience.workload import dead_letter_ways
from rabbitmq_resilience.workload.consistency import problems
from rabbitmq_resilience.workload.services import Service
from rabbitmq_resilience.workload.workload_fields import WorkloadFields


class Workload(WorkloadFields):
    """Publishers that wait for confirms, and consumers that acknowledge.

    ``preset`` names a published load, in the size for this project's machine. With ``scale``, it is the published load
    times this factor. Fields given here replace whole fields of the preset.

    Queues, and the clients that use them:

    - ``queue_pattern``: the names of queues; ``%d`` is the number of a queue, from 1 (``orders-%d``: orders-1, ...).
    - Publisher i publishes to queue i modulo ``queues``. If there are fewer publishers than queues, it publishes to
      each queue of its share in turn, as ``spread`` says. Consumers share queues in the same way.
    - ``leaders_on``: the nodes over which leaders are placed in turn, as node names or ``zone:x``; empty: all nodes.
    - ``group_size``: the number of members of a quorum queue.
    - ``lazy``: keeps messages of classic and mirrored queues on disk (the policy ``queue-mode: lazy``). RabbitMQ has
      it from 3.6 until before 3.12. For later versions it is refused: all their classic queues are much like that.
    - ``single_active_consumer``: only one consumer of a queue at a time gets messages, until it is gone. A queue needs
      two consumers for a takeover. ``order: {shared_queues: judged}`` demands order over all of them.
    - ``max_in_memory_length``: how many messages a quorum queue keeps in memory. RabbitMQ heeds it from 3.8 until
      before 3.10, which keeps none (rabbitmq-server #1970 and #3898). Later versions accept it and ignore it.
    - ``arguments``: further arguments of queue declarations, such as ``{x-delivery-limit: 5}``, ``x-consumer-timeout``,
      ``x-consumer-disconnected-timeout`` or ``x-queue-leader-locator``. No run is played on a version that is known not
      to have one of them. A broker refuses or ignores other arguments that it does not know. Messages that a queue
      drops because of them count as lost.
    - ``services``: applications that read queues of their own, each at its own pace. State ``queues``, ``consumers``
      and the processing there then. Queues and consumers are numbered from one service to the next.
    - ``dead_letters``: messages that consumers reject, that expire or that queues drop go to the queues of one service.
    - ``routing``: exchanges and bindings. With it, publishers publish its turns one after another, not to queues.

    Load:

    - ``rate_per_s``: the target of all publishers together; null: as fast as confirms allow.
    - ``in_flight``: how many messages of a publisher may wait for their confirm. Without a rate, a publisher sends more
      once half of them are confirmed, and 20 times a second.
    - ``message_sizes``: several sizes instead of ``message_bytes``, each drawn as often as its weight says. The size of
      a message depends on the seed, its publisher and its number in the order of sending. A publisher holds at most
      ``in_flight`` messages, of any size.
    - ``priorities``: the priorities of messages, each drawn as often as listed: with [0, 0, 9] about every third
      message has priority 9. Classic and mirrored queues are declared with the highest as ``x-max-priority``. Quorum
      queues have priorities from 4.0 on: above 4 is high and the rest is normal. From 4.3 on they have 0 to 31, all
      different. A message overtakes lower ones that wait in the queue, but none that a consumer already holds
      (``prefetch`` bounds their number).
    - ``processing_ms``: the time of a consumer for each message before it acknowledges it, one after another, as in an
      application with one thread. Consumers also take it during the drain, so ``drain_s`` must allow for it. (A broker
      closes the channel of a consumer that keeps a message longer than its ``consumer_timeout``, 30 minutes by
      default.)
    - ``variable_rate`` and ``variable_processing``: peaks and steps. Each step has a value and a duration. They are
      played once, one after another, from the end of the steady phase on. Before and after them the plain values apply.
    - ``consume``: when consumers connect. With ``at_drain`` they connect when the drain begins. So queues have no
      consumer during the load and its faults, and keep all messages; ``drain_s`` must allow for all of them.
    - ``start_spread_s``: at the start, publishers connect one after another over this time, and so do consumers. All
      clients connect before the first message is sent.
    - ``copy_every``: one in this number of a publisher's messages also goes to a second queue. Its messages are neither
      read nor judged; a confirm waits for both queues.
    - ``declare_every_s``: how often a new item is declared, through each node in turn: a queue, a binding, a policy.

    Connections:

    - ``heartbeat_s`` is the AMQP heartbeat that all clients ask for.
    - ``confirm_timeout_s``: a publisher that waits longer for a confirm counts the message as unknown, and goes to
      another node. Time during which the broker blocks the publisher does not count.
    - ``reconnect``: client i begins at node i modulo the number of nodes. With ``own_zone`` it goes only to nodes of
      that node's zone, so that a cut has clients on every side as long as it lasts.

    - ``idle_connections``: this number of further connections only send heartbeats, every ``idle_heartbeat_s``. They
      are open before the steady phase, over all nodes that take clients, and are opened again when they are lost.
      ``churn`` opens and closes connections, channels, queues and bindings.

    Unsafe choices, which exist to show that the suite notices them:

    - ``confirms: none`` asks for no confirms. ``confirms: ignored`` asks for confirms and ignores all of them, also
      negative ones. Both count each write as confirmed.
    - ``acks: automatic`` lets the broker forget a message once it is sent. With ``acks: early`` a consumer acknowledges
      messages when they arrive and processes them afterwards; only processed messages count as received.
    - ``persistent: false``: messages are not kept on disk.
    - ``durable: false`` (classic only, up to 4.2): a queue is gone when its node stops.
    - ``exclusive`` (classic only): consumers declare their queues when they connect. A queue and its messages are gone
      with its consumer's connection. Messages that are confirmed before the consumer is back may be lost.
    - ``limits`` let a queue drop messages. With ``redeclare`` (classic only) consumers declare their queues each time
      that they connect, as applications do whose queues expire (``limits.expires_ms``). If a consumer was away for that
      long, messages that are confirmed before it is back may be lost. Without it, no client declares the queues again.
    """

    @model_validator(mode="after")
    def _served(self) -> Self:
        if not self.services:
            return self
        for field, total in _summed(self.services).items():
            if field in self.model_fields_set and getattr(self, field) != total:
                raise ValueError(f"{field} is {getattr(self, field)}, and the services have {total}; leave {field} out")
            self.__dict__[field] = total  # the load uses these fields, also if they were not given
        if self.queue_pattern != "q%d":
            raise ValueError("queue_pattern does not go with services, whose names their queues have")
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
    def dead_letter_queues(self) -> Mapping[str, tuple[str, ...]]:
        """Return {queue: the queues that take its dead letters}."""
        return dead_letter_ways.queues_of(self.dead_letters, self) if self.dead_letters is not None else {}

    def scaled(self, factor: float) -> Self:
        """Return the same load with ``factor`` times the queues, publishers, consumers and rates.

        Each number is at least 1, except that a pause stays one. Raise ValidationError (a ValueError) if a number is
        more than a workload may have.
        """
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
    """Return the sums of the queues and of the consumers of all services."""
    return {name: sum(getattr(service, name) for service in services) for name in ("queues", "consumers")}
