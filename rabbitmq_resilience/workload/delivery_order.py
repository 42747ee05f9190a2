"""Find messages of an application that came to a consumer after a later one of their channel."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from rabbitmq_resilience.history.events import WireEvent
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.tap.wire_history import Mode
from rabbitmq_resilience.workload.application_queues import ApplicationQueues
from rabbitmq_resilience.workload.wire_messages import Session, TappedDelivery, TappedPublish, WireMessages

#: A consumer whose end was not seen.
_NEVER_US = 1 << 62
_ENDS_CONNECTION = frozenset({"lost", "closed", "connection_closed"})


class _Reader(NamedTuple):
    """A time in which a channel read from a queue."""

    from_us: int
    to_us: int
    session: Session


class DeliveryOrder:
    """The order in which messages came, where brokers promise one: published on one channel, through one exchange, with
    one priority, and taken from one queue by one channel (AMQP 0-9-1, 4.7).

    Messages are compared if they can be distinguished from all others, were not refused, and came for the first time
    and unmarked. A channel's deliveries are compared if it was the only consumer of the queue as long as it consumed.
    ``by_queue`` counts what was ``judged``, what came to consumers that ``shared`` a queue, and messages that were
    ``equal``; ``last_us`` is when the last judged one came. ``skipped``: queues that are not judged.
    """

    def __init__(
        self, messages: WireMessages, wire: Sequence[WireEvent], queues: ApplicationQueues, skipped: Collection[str]
    ) -> None:
        self.by_queue: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._overtaken: list[tuple[TappedDelivery, TappedPublish, TappedPublish]] = []
        self._queues = queues
        names = queues.places.keys() - set(skipped)
        alone = _alone(messages.deliveries, wire)
        counts = Counter(publish.identity for publish in messages.publishes)
        sent = {one.identity: (number, one) for number, one in enumerate(messages.publishes)}
        highest: dict[tuple[Any, ...], tuple[int, TappedPublish]] = {}
        came: set[tuple[int, str]] = set()
        for delivery in messages.deliveries:
            if delivery.queue not in names or delivery.identity not in sent:
                continue
            repeated = delivery.redelivered or (delivery.identity, delivery.queue) in came
            came.add((delivery.identity, delivery.queue))
            number, publish = sent[delivery.identity]
            count = self.by_queue[delivery.queue]
            if (delivery.session, delivery.queue) not in alone:
                count["shared"] += 1
            elif counts[delivery.identity] > 1:
                count["equal"] += 1
            elif not repeated and self._is_in_order(publish, delivery.queue):
                count["judged"] += 1
                count["last_us"] = delivery.received_us
                channels = publish.session, publish.route[0], publish.priority, delivery.session, delivery.queue
                last, later = highest.get(channels, (-1, publish))
                if number < last:
                    self._overtaken.append((delivery, publish, later))
                else:
                    highest[channels] = number, publish

    def _is_in_order(self, publish: TappedPublish, queue: str) -> bool:
        taken = publish.outcome is Outcome.CONFIRMED or (publish.mode is Mode.PLAIN and not publish.returned)
        return taken and queue in self._queues.owed(*publish.route)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of an event "overtaken" for each message that came too late."""
        for delivery, publish, later in self._overtaken:
            yield {
                "t_us": delivery.received_us,
                "process": delivery.process,
                "queue": delivery.queue,
                "publisher": publish.process,
                "sent_us": publish.sent_us,
                "later_us": later.sent_us,
            }


def _alone(deliveries: Sequence[TappedDelivery], wire: Sequence[WireEvent]) -> set[tuple[Session, str]]:
    """Return the channels, each with a queue, that no other consumer of that queue was there with at any time."""
    readers: defaultdict[str, list[_Reader]] = defaultdict(list)
    for reader, queue in _consumers(wire):
        readers[queue].append(reader)
    subscribed = {(reader.session, queue) for queue, of in readers.items() for reader in of}
    fetched: dict[tuple[Session, str], tuple[int, int]] = {}
    for one in deliveries:
        if (key := (one.session, one.queue)) not in subscribed:
            fetched[key] = fetched.get(key, (one.received_us, 0))[0], one.received_us
    for (session, queue), span_us in fetched.items():
        readers[queue].append(_Reader(*span_us, session))
    together: set[tuple[Session, str]] = set()
    for queue, of in readers.items():
        last = None
        for reader in sorted(of):
            if last is not None and reader.from_us <= last.to_us:
                together |= {(reader.session, queue), (last.session, queue)}
            last = reader if last is None or reader.to_us > last.to_us else last
    return {(reader.session, queue) for queue, of in readers.items() for reader in of} - together


def _consumers(wire: Sequence[WireEvent]) -> Iterator[tuple[_Reader, str]]:
    """Yield each subscription with its queue. It ends with its channel: what was sent before it was cancelled may still
    come."""
    open_: defaultdict[Session, list[tuple[int, str]]] = defaultdict(list)
    for event in wire:
        if event.what == "consuming":
            open_[event.connection, event.fields["session"]].append((event.t_us, event.fields["queue"]))
        elif event.what in _ENDS_CONNECTION:
            for session in [session for session in open_ if session[0] == event.connection]:
                yield from _ended(session, open_.pop(session), event.t_us)
        elif event.what == "channel_closed":
            session = event.connection, event.fields["session"]
            yield from _ended(session, open_.pop(session, []), event.t_us)
    yield from itertools.chain(*(_ended(session, begun, _NEVER_US) for session, begun in open_.items()))


def _ended(session: Session, begun: Sequence[tuple[int, str]], to_us: int) -> Iterator[tuple[_Reader, str]]:
    return ((_Reader(from_us, to_us, session), queue) for from_us, queue in begun)
