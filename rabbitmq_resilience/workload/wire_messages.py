"""Follow what a tap records of messages: what became of each publish, and of each delivery."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rabbitmq_resilience.history.event_log import GrowingEvents
from rabbitmq_resilience.history.events import WireEvent
from rabbitmq_resilience.history.history import Outcome, StreamReader
from rabbitmq_resilience.tap.wire_history import EVENTS_FILE, WIRE, WIRE_FILE, Kind, Mode, Row

#: A channel of a connection.
Session = tuple[int, int]
#: Exchange and routing key.
Route = tuple[str, str]


class ConnectionOwner(NamedTuple):
    """The process that opened a connection, and the node that it leads to."""

    process: str
    node: str


@dataclass(slots=True)
class TappedPublish:
    """A message that a process published, and what became of it. ``tag``: the number of its confirm. ``expires``: it
    has a time to live of its own."""

    process: str
    node: str
    session: Session
    sent_us: int
    tag: int
    mode: Mode
    route: Route
    identity: int
    named: bool
    body: int
    mandatory: bool
    expires: bool = False
    priority: int = 0
    outcome: Outcome = Outcome.UNKNOWN
    outcome_us: int | None = None
    returned: bool = False


@dataclass(slots=True)
class TappedDelivery:
    """A message that a process was sent. ``settled``: acknowledged or rejected, or taken as acknowledged; and when.
    ``requeued``: rejected so that it comes again."""

    process: str
    session: Session
    received_us: int
    tag: int
    queue: str
    redelivered: bool
    automatic: bool
    identity: int
    body: int
    settled: bool = False
    settled_us: int | None = None
    rejected: bool = False
    requeued: bool = False
    #: Whether its channel ended first, so that the broker took it back.
    taken_back: bool = False

    def settle(self, row: Row, *, at_us: int) -> None:
        """Take what a row says, which had its effect at that moment."""
        self.settled, self.settled_us = True, at_us
        self.rejected = row.kind == Kind.REJECTED
        self.requeued = self.rejected and row.flag


@dataclass
class _WaitingMessages:
    """What waits on a channel: publishes by the tag of their confirm, those of a transaction, mandatory ones without
    confirms by what a return says of them, unsettled deliveries, and those that an open transaction settles."""

    confirms: dict[int, TappedPublish] = field(default_factory=dict)
    transaction: list[TappedPublish] = field(default_factory=list)
    mandatory: defaultdict[tuple[int, Route], deque[TappedPublish]] = field(default_factory=lambda: defaultdict(deque))
    deliveries: dict[int, TappedDelivery] = field(default_factory=dict)
    settling: dict[int, tuple[TappedDelivery, Row]] = field(default_factory=dict)

    @property
    def unsettled(self) -> list[TappedDelivery]:
        return [*self.deliveries.values(), *(delivery for delivery, _ in self.settling.values())]


class WireMessages:
    """The messages of a tap's record, read while it grows. ``folder`` is the tap's.

    Call ``update`` for what was recorded since. Until the record is complete, what still waits is of unknown outcome.
    """

    def __init__(self, folder: Path) -> None:
        self._rows = StreamReader(folder / WIRE_FILE, WIRE)
        self._growing = GrowingEvents(folder / EVENTS_FILE)
        self._wire: list[WireEvent] = []
        #: When each channel ended, by itself or with its connection.
        self._ends: dict[Session, int] = {}
        self._sessions: defaultdict[int, set[int]] = defaultdict(set)
        self._channels: defaultdict[Session, _WaitingMessages] = defaultdict(_WaitingMessages)
        self.connections: dict[int, ConnectionOwner] = {}
        self.publishes: list[TappedPublish] = []
        self.deliveries: list[TappedDelivery] = []
        self.published: Counter[str] = Counter()
        self.confirmed: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.refused = 0

    def update(self) -> None:
        """Read what was recorded since the last call."""
        for batch in self._rows.batches():
            columns = [batch.column(name).to_pylist() for name in WIRE.names]
            for values in zip(*columns, strict=True):
                self._take(Row(*values))

    def complete(self, *, asked_us: int, drained_us: int | None = None) -> Sequence[WireEvent]:
        """Read the rest of a complete record, settle what still waits, and return its events.

        Deliveries on channels that ended before ``asked_us``, when the processes were asked to end, went back to their
        queues. So did those that came after ``drained_us``, the end of the drain, to processes that then ended."""
        self.update()
        events = self.events()
        last_us = max([event.t_us for event in events], default=0)
        for session, channel in self._channels.items():
            ended_us = self._ends.get(session)
            for publish in [*channel.confirms.values(), *channel.transaction]:
                publish.outcome_us = max(ended_us or last_us, publish.sent_us)
            for delivery in channel.unsettled:
                late = drained_us is not None and delivery.received_us >= drained_us
                delivery.taken_back = ended_us is not None and (late or ended_us < asked_us)
        return sorted(events, key=lambda event: event.t_us)

    def events(self) -> Sequence[WireEvent]:
        """Return the tap's events so far, in the order in which they were recorded."""
        for event in self._growing.new():
            if isinstance(event, WireEvent):
                self._wire.append(event)
                self._follow(event)
        return self._wire

    def unsettled(self) -> int:
        """Return how many deliveries wait for an acknowledgement on channels that are open."""
        self.events()
        channels = [channel for session, channel in self._channels.items() if session not in self._ends]
        return sum(len(channel.unsettled) for channel in channels)

    def _follow(self, event: WireEvent) -> None:
        match event.what:
            case "opened":
                self.connections[event.connection] = ConnectionOwner(event.fields["process"], event.fields["node"])
            case "channel_opened":
                self._sessions[event.connection].add(event.fields["session"])
            case "channel_closed":
                self._ends.setdefault((event.connection, event.fields["session"]), event.t_us)
            case "lost" | "closed" | "connection_closed":
                for session in self._sessions[event.connection]:
                    self._ends.setdefault((event.connection, session), event.t_us)
            case _:
                pass

    def _connection(self, number: int) -> ConnectionOwner:
        if number not in self.connections:
            self.events()
        return self.connections[number]

    def _take(self, row: Row) -> None:
        session = (row.connection, row.session)
        channel, kind = self._channels[session], Kind(row.kind)
        match kind:
            case Kind.PUBLISHED:
                self._published(row, session, channel)
            case Kind.CONFIRMED | Kind.NACKED:
                outcome = Outcome.CONFIRMED if kind is Kind.CONFIRMED else Outcome.NACKED
                for tag in _meant(row, channel.confirms):
                    self._settle(channel.confirms.pop(tag), outcome, row.t_us)
            case Kind.RETURNED:
                self._returned(row, channel)
            case Kind.COMMITTED | Kind.ROLLED_BACK:
                self._end_transaction(row, channel)
            case Kind.DELIVERED | Kind.GOT:
                self._delivered(row, session, channel)
            case Kind.ACKED | Kind.REJECTED:
                for tag in _meant(row, channel.deliveries):
                    delivery = channel.deliveries.pop(tag)
                    if Mode(row.mode) is Mode.TRANSACTIONS:
                        channel.settling[tag] = delivery, row
                    else:
                        delivery.settle(row, at_us=row.t_us)

    def _end_transaction(self, row: Row, channel: _WaitingMessages) -> None:
        """Settle the messages of a transaction. Those that were published after its end was asked for belong to the
        next one. After a rollback, deliveries that it had settled wait again."""
        outcome = Outcome.CONFIRMED if row.kind == Kind.COMMITTED else Outcome.NACKED
        for publish in channel.transaction:
            if publish.tag <= row.tag:
                self._settle(publish, outcome, row.t_us)
        channel.transaction = [publish for publish in channel.transaction if publish.tag > row.tag]
        for tag, (delivery, settled) in channel.settling.items():
            if row.kind == Kind.COMMITTED:
                delivery.settle(settled, at_us=row.t_us)
            else:
                channel.deliveries[tag] = delivery
        channel.settling.clear()

    def _published(self, row: Row, session: Session, channel: _WaitingMessages) -> None:
        process, node = self._connection(row.connection)
        route = (row.place, row.routing_key)
        mode = Mode(row.mode)
        publish = TappedPublish(
            *(process, node, session, row.t_us, row.tag, mode, route, row.identity, row.named, row.body, row.flag),
            expires=row.expires,
            priority=row.priority,
        )
        self.publishes.append(publish)
        self.published[process] += 1
        if mode is Mode.CONFIRMS:
            channel.confirms[row.tag] = publish
        elif mode is Mode.TRANSACTIONS:
            channel.transaction.append(publish)
        else:
            publish.outcome_us = row.t_us
            if publish.mandatory:
                channel.mandatory[publish.identity, route].append(publish)

    def _settle(self, publish: TappedPublish, outcome: Outcome, t_us: int) -> None:
        publish.outcome = Outcome.RETURNED if publish.returned and outcome is Outcome.CONFIRMED else outcome
        publish.outcome_us = t_us
        self.confirmed[publish.process] += outcome is Outcome.CONFIRMED
        self.refused += publish.outcome is not Outcome.CONFIRMED

    def _returned(self, row: Row, channel: _WaitingMessages) -> None:
        """Mark the first mandatory publish that waits and fits a returned message, which comes before its confirm."""
        fits = row.identity, (row.place, row.routing_key)
        for publish in [*channel.confirms.values(), *channel.transaction]:
            if publish.mandatory and not publish.returned and (publish.identity, publish.route) == fits:
                publish.returned = True
                return
        if plain := channel.mandatory.get(fits):
            publish = plain.popleft()
            publish.returned, publish.outcome, publish.outcome_us = True, Outcome.RETURNED, row.t_us
            self.refused += 1

    def _delivered(self, row: Row, session: Session, channel: _WaitingMessages) -> None:
        process, _ = self._connection(row.connection)
        automatic = Mode(row.mode) is Mode.AUTOMATIC
        delivery = TappedDelivery(
            process, session, row.t_us, row.tag, row.place, row.flag, automatic, row.identity, row.body, automatic
        )
        delivery.settled_us = row.t_us if automatic else None
        self.deliveries.append(delivery)
        self.delivered[process] += 1
        if not automatic:
            channel.deliveries[row.tag] = delivery


def _meant(row: Row, waiting: Mapping[int, object]) -> list[int]:
    """Return the tags that a row settles: its own, or all up to it; with tag 0 and ``multiple``, all."""
    if not row.multiple:
        return [row.tag] if row.tag in waiting else []
    return [tag for tag in waiting if tag <= row.tag or row.tag == 0]
