"""Match the deliveries of an application with the messages that it published, where several of these are equal."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rabbitmq_resilience.workload.wire_messages import Session, TappedDelivery, TappedPublish


class Match(NamedTuple):
    """A delivery, the index of its message among all that are owed, and the index of the queue that it came from.
    ``intact``: whether the message was published with that body."""

    delivery: TappedDelivery
    message: int
    queue: int
    intact: bool


class EqualMessages:
    """Messages with one identity and one body, owed in one queue; and which of them have come.

    A delivery is a repeat if it is marked as redelivered, and an earlier one was rejected to come again, or was never
    acknowledged on another channel. Each such delivery accounts for one repeat, the earliest first. Any other delivery
    is the first of a message that was sent before it and has not come yet: of one that must arrive if there is one,
    otherwise of the earliest. If all have come, it is a repeat: without the mark of a message that came only marked if
    there is one, otherwise of the last.
    """

    def __init__(self) -> None:
        self.arrived: set[int] = set()
        self._later: deque[tuple[int, int, bool]] = deque()
        self._owed: deque[int] = deque()
        self._others: deque[int] = deque()
        #: Deliveries that may come again: the message, and the channel that still has it.
        self._unsettled: list[tuple[int, Session | None]] = []
        self._only_marked: dict[int, None] = {}
        self._last: int | None = None

    def add(self, number: int, sent_us: int, *, must_arrive: bool) -> None:
        """Add a message; messages come in the order in which they were sent."""
        self._later.append((sent_us, number, must_arrive))

    def take(self, delivery: TappedDelivery) -> int | None:
        """Return the message of the next delivery; None if none was sent before it."""
        while self._later and self._later[0][0] <= delivery.received_us:
            _, number, must_arrive = self._later.popleft()
            (self._owed if must_arrive else self._others).append(number)
        found = self._message_of(delivery)
        if found is None:
            return None
        if delivery.redelivered and found not in self.arrived:
            self._only_marked[found] = None
        if not delivery.redelivered:
            self._only_marked.pop(found, None)
        if not delivery.settled or delivery.requeued:
            self._unsettled.append((found, None if delivery.requeued else delivery.session))
        self.arrived.add(found)
        self._last = found
        return found

    def _message_of(self, delivery: TappedDelivery) -> int | None:
        for place, (number, session) in enumerate(self._unsettled) if delivery.redelivered else ():
            if session != delivery.session:
                del self._unsettled[place]
                return number
        for waiting in (self._owed, self._others):
            if waiting:
                return waiting.popleft()
        if not delivery.redelivered and self._only_marked:
            return next(iter(self._only_marked))
        return self._last


class MatchedDeliveries:
    """All deliveries from queues that must be accounted for, each with its message.

    ``queues``: for each message the queues that it goes to. ``must_arrive``: whether it must arrive in these. A
    delivery whose body no message of its identity has is matched by its identity alone. So is one whose queue is not
    known, if its message goes to one queue.
    """

    def __init__(
        self,
        publishes: Sequence[TappedPublish],
        queues: Sequence[Sequence[int]],
        must_arrive: Callable[[TappedPublish], bool],
    ) -> None:
        self.matches: list[Match] = []
        self._publishes = publishes
        self._queues = queues
        self._groups: defaultdict[tuple[int, int, int], EqualMessages] = defaultdict(EqualMessages)
        self._first: dict[tuple[int, int], int] = {}
        self._queues_of: defaultdict[int, set[int]] = defaultdict(set)
        for number, publish in enumerate(publishes):
            for queue in queues[number]:
                group = self._groups[publish.identity, publish.body, queue]
                group.add(number, publish.sent_us, must_arrive=must_arrive(publish))
                self._first.setdefault((publish.identity, queue), number)
                self._queues_of[publish.identity].add(queue)

    def take(self, deliveries: Iterable[tuple[TappedDelivery, int | None]]) -> None:
        """Match deliveries, in their order, each with its queue (None if that is not known)."""
        for delivery, known in deliveries:
            queue = self._queue_of(delivery) if known is None else known
            if queue is None:
                continue
            group = self._groups.get((delivery.identity, delivery.body, queue))
            number = self._first.get((delivery.identity, queue)) if group is None else group.take(delivery)
            if number is not None:
                self.matches.append(Match(delivery, number, queue, group is not None))

    def has_come(self, number: int) -> bool:
        """Return whether a message has come from every queue that it goes to."""
        return all(number in group.arrived for group in self._groups_of(number))

    def equal_has_come(self, number: int) -> bool:
        """Return whether it, or an equal message, has come from every queue that it goes to."""
        return all(group.arrived for group in self._groups_of(number))

    def _groups_of(self, number: int) -> list[EqualMessages]:
        publish = self._publishes[number]
        return [self._groups[publish.identity, publish.body, queue] for queue in self._queues[number]]

    def _queue_of(self, delivery: TappedDelivery) -> int | None:
        queues = self._queues_of.get(delivery.identity, set())
        return next(iter(queues)) if len(queues) == 1 and not delivery.queue else None
