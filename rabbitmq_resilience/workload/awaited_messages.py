"""Count the messages of an application that must still arrive, while they come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.tap.wire_history import Mode
from rabbitmq_resilience.workload.application_queues import ApplicationQueues
from rabbitmq_resilience.workload.equal_messages import EqualMessages
from rabbitmq_resilience.workload.wire_messages import TappedDelivery, TappedPublish, WireMessages

#: Identity, body, queue.
_Key = tuple[int, int, str]


@dataclass
class _Equal:
    """Equal messages of one queue, their deliveries, and how many of them must arrive and have not."""

    publishes: list[TappedPublish] = field(default_factory=list)
    deliveries: list[TappedDelivery] = field(default_factory=list)
    owed: int = 0
    missing: int = 0

    def count(self, must_arrive: Callable[[TappedPublish], bool]) -> None:
        """Count again, by the rule that verdicts use. Of equal messages with a message_id, one is enough."""
        equal, owed = EqualMessages(), [must_arrive(publish) for publish in self.publishes]
        for number, publish in enumerate(self.publishes):
            equal.add(number, publish.sent_us, must_arrive=owed[number])
        for delivery in self.deliveries:
            equal.take(delivery)
        self.owed = sum(owed)
        self.missing = sum(one and number not in equal.arrived for number, one in enumerate(owed))
        if self.publishes[0].named and equal.arrived:
            self.missing = 0


class AwaitedMessages:
    """The messages that must arrive, as far as they were recorded. ``owed`` and ``missing`` count them once for each
    queue. Each call of ``update`` looks at what is new, and at what may have changed."""

    def __init__(
        self, messages: WireMessages, queues: ApplicationQueues, must_arrive: Callable[[TappedPublish], bool]
    ) -> None:
        self.owed = self.missing = 0
        self._messages = messages
        self._queues = queues
        self._must_arrive = must_arrive
        self._equal: defaultdict[_Key, _Equal] = defaultdict(_Equal)
        self._published = self._delivered = 0
        self._unconfirmed: list[TappedPublish] = []
        #: Messages of which some came: an acknowledgement may show that a delivery was no repeat.
        self._unclear: set[_Key] = set()

    def update(self) -> None:
        """Take what the messages have in addition since the last call."""
        changed = set(self._unclear)
        changed.update(key for publish in self._settled() for key in self._keys(publish))
        for publish in self._messages.publishes[self._published :]:
            for key in self._keys(publish):
                self._equal[key].publishes.append(publish)
                changed.add(key)
            if _waits(publish):
                self._unconfirmed.append(publish)
        for delivery in self._messages.deliveries[self._delivered :]:
            key = (delivery.identity, delivery.body, delivery.queue)
            if key in self._equal:
                self._equal[key].deliveries.append(delivery)
                changed.add(key)
        self._published, self._delivered = len(self._messages.publishes), len(self._messages.deliveries)
        for key in changed:
            self._count(key)

    def _settled(self) -> Iterable[TappedPublish]:
        """Return the publishes whose outcome has become known."""
        settled = [publish for publish in self._unconfirmed if not _waits(publish)]
        if settled:
            self._unconfirmed = [publish for publish in self._unconfirmed if _waits(publish)]
        return settled

    def _keys(self, publish: TappedPublish) -> Iterable[_Key]:
        return ((publish.identity, publish.body, queue) for queue in self._queues.owed(*publish.route))

    def _count(self, key: _Key) -> None:
        equal = self._equal[key]
        owed, missing = equal.owed, equal.missing
        equal.count(self._must_arrive)
        self.owed += equal.owed - owed
        self.missing += equal.missing - missing
        if equal.missing and equal.deliveries:
            self._unclear.add(key)
        else:
            self._unclear.discard(key)


def _waits(publish: TappedPublish) -> bool:
    return publish.mode is not Mode.PLAIN and publish.outcome is Outcome.UNKNOWN
