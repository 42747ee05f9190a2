"""Count how a process of an application used its brokers, as a tap saw it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rabbitmq_resilience.history.events import WireEvent
from rabbitmq_resilience.tap.wire_history import Mode
from rabbitmq_resilience.workload.wire_messages import TappedPublish, WireMessages


def used(
    name: str,
    messages: WireMessages,
    wire: Sequence[WireEvent],
    *,
    is_unroutable: Callable[[TappedPublish], bool] = lambda _: False,
) -> dict[str, Any]:
    """Return the numbers of one process, as ``history.events.ApplicationUseEvent`` describes them."""
    sent = [publish for publish in messages.publishes if publish.process == name]
    got = [delivery for delivery in messages.deliveries if delivery.process == name]
    unsettled = Counter(d.queue for d in got if not d.settled and not d.taken_back)
    consuming = [
        event
        for event in wire
        if event.what == "consuming"
        and event.connection in messages.connections
        and messages.connections[event.connection].process == name
    ]
    return {
        "published": len(sent),
        "plain": sum(publish.mode is Mode.PLAIN for publish in sent),
        "optional": sum(not publish.mandatory for publish in sent),
        "unroutable": sum(not publish.mandatory and is_unroutable(publish) for publish in sent),
        "delivered": len(got),
        "automatic": sum(delivery.automatic for delivery in got),
        "acknowledged": sum(delivery.settled and not delivery.automatic for delivery in got),
        "returned": sum(delivery.taken_back for delivery in got),
        "unsettled": sum(unsettled.values()),
        "unsettled_in": dict(unsettled),
        "unlimited": any(not event.fields["prefetch"] and not event.fields["automatic"] for event in consuming),
    }
