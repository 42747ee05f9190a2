"""Find messages of an application that no queue was bound for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rabbitmq_resilience.history.events import WireEvent
from rabbitmq_resilience.workload.application_queues import ApplicationQueues
from rabbitmq_resilience.workload.matching import DEFAULT_EXCHANGE
from rabbitmq_resilience.workload.wire_messages import Route, TappedPublish

#: Names of queues that exist only as the way back to a client ("Direct Reply-to").
REPLY_QUEUES = "amq.rabbitmq.reply-to"


class UnroutedMessages:
    """What the queues of an application did not take, by the bindings that a broker listed before ``known_us``.

    Nothing is said of exchanges that may route by headers or hashes, or that a queue was bound to later."""

    def __init__(self, queues: ApplicationQueues, wire: Sequence[WireEvent], *, known_us: int) -> None:
        declared = {event.fields["queue"] for event in wire if event.what == "queue_declared"}
        changes = [e for e in wire if e.what in {"queue_bound", "queue_unbound"} and e.t_us >= queues.asked_us]
        self._queues = queues
        self._names = queues.names | declared
        self._changed = {event.fields["exchange"] for event in changes}
        self._known_us = known_us
        self._reaches_none = cache(self._finds_none)

    def is_unroutable(self, publish: TappedPublish) -> bool:
        """Return whether it is certain that no queue took a message."""
        return publish.sent_us >= self._known_us and self._reaches_none(publish.route)

    def _finds_none(self, route: Route) -> bool:
        exchange, key = route
        if exchange == DEFAULT_EXCHANGE:
            return key not in self._names and not key.startswith(REPLY_QUEUES)
        if not self._queues.computed or self._changed or exchange not in self._queues.exchanges:
            return False
        return not self._queues.router.reached(exchange, key, {}).queues
