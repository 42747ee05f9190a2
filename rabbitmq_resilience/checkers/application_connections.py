"""Follow the connections of the user's application, and their consumers, from what a tap saw of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.history.events import WireEvent

#: A consumer of a connection: its channel and its tag.
_Tag = tuple[int, str]


@dataclass
class ConsumerLife:
    """A consumer of ``queue``, from when to when."""

    queue: str
    from_us: float
    to_us: float = NEVER_US


@dataclass
class ConnectionLife:
    """A connection of ``process`` to ``node``. ``connected_us`` is None if its handshake was not seen to end.
    ``states``: in words what was known of it, each from some moment on."""

    process: str
    node: str
    opened_us: float
    connected_us: float | None = None
    closed_us: float = NEVER_US
    consumers: list[ConsumerLife] = field(default_factory=list)
    unreadable: str = ""
    states: list[tuple[float, str]] = field(default_factory=list)
    _open: dict[_Tag, ConsumerLife] = field(default_factory=dict)

    def take(self, event: WireEvent) -> None:
        """Follow one of its events."""
        if (follow := _FOLLOWED.get(event.what)) is not None:
            follow(self, event)

    def _connected(self, event: WireEvent) -> None:
        self.connected_us = event.t_us
        self.states.append((event.t_us, "was open"))

    def _consumes(self, event: WireEvent) -> None:
        fields = event.fields
        self._open[event.channel, fields["consumer"]] = one = ConsumerLife(fields["queue"], event.t_us)
        self.consumers.append(one)
        self.states.append((event.t_us, "was open"))

    def _cancelled(self, event: WireEvent) -> None:
        self._end([(event.channel, event.fields["consumer"])], event.t_us)
        if event.fields["by"] == "broker":
            queue = event.fields["queue"]
            self.states.append((event.t_us, f"was open, and the broker had cancelled its consumer of {queue}"))

    def _channel_closed(self, event: WireEvent) -> None:
        self._end([key for key in self._open if key[0] == event.channel], event.t_us)
        if event.fields["by"] == "broker":
            self.states.append((event.t_us, f"was open, and the broker had closed a channel: {event.fields['text']}"))

    def _blocked(self, event: WireEvent) -> None:
        self.states.append((event.t_us, f"was open, and the broker had blocked it: {event.fields['detail']}"))

    def _unblocked(self, event: WireEvent) -> None:
        self.states.append((event.t_us, "was open"))

    def _connection_closed(self, event: WireEvent) -> None:
        fields = event.fields
        self.states.append((event.t_us, f"was closed by the {fields['by']}: {fields['code']} {fields['text']}"))
        self._close(event.t_us)

    def _refused(self, event: WireEvent) -> None:
        self.states.append((event.t_us, f"was refused: {event.fields['detail']}"))

    def _lost(self, event: WireEvent) -> None:
        if self.closed_us == NEVER_US:
            self.states.append((event.t_us, f"was lost, by the {event.fields['by']}'s end"))
        self._close(event.t_us)

    def _closed(self, event: WireEvent) -> None:
        self._close(event.t_us)

    def _unread(self, event: WireEvent) -> None:
        self.unreadable = str(event.fields.get("detail", event.what))

    def _close(self, t_us: float) -> None:
        self.closed_us = min(self.closed_us, t_us)
        self._end(list(self._open), t_us)

    def _end(self, keys: Sequence[_Tag], t_us: float) -> None:
        for key in keys:
            if (consumer := self._open.pop(key, None)) is not None:
                consumer.to_us = t_us


_FOLLOWED: Mapping[str, Callable[[ConnectionLife, WireEvent], None]] = {
    "connected": ConnectionLife._connected,
    "consuming": ConnectionLife._consumes,
    "cancelled": ConnectionLife._cancelled,
    "channel_closed": ConnectionLife._channel_closed,
    "blocked": ConnectionLife._blocked,
    "unblocked": ConnectionLife._unblocked,
    "connection_closed": ConnectionLife._connection_closed,
    "refused": ConnectionLife._refused,
    "lost": ConnectionLife._lost,
    "closed": ConnectionLife._closed,
    "unreadable": ConnectionLife._unread,
    "not_copied": ConnectionLife._unread,
}


def connections_of(facts: Facts) -> Sequence[ConnectionLife]:
    """Return all connections of the application, in the order in which they were opened; computed once."""
    return facts.once(_connections)


def _connections(facts: Facts) -> Sequence[ConnectionLife]:
    found: dict[int, ConnectionLife] = {}
    for event in facts.of_kind(WireEvent):
        if event.what == "opened":
            found[event.connection] = ConnectionLife(event.fields["process"], event.fields["node"], event.t_us)
        elif event.connection in found:
            found[event.connection].take(event)
    return tuple(found.values())


def consumers_at(connections: Sequence[ConnectionLife], t_us: float) -> Mapping[str, int]:
    """Return how many consumers each queue had at that moment."""
    counts: dict[str, int] = {}
    for connection in connections:
        for consumer in connection.consumers:
            if consumer.from_us <= t_us < consumer.to_us:
                counts[consumer.queue] = counts.get(consumer.queue, 0) + 1
    return counts


def least_consumers(connections: Sequence[ConnectionLife], from_us: float, to_us: float) -> Mapping[str, int]:
    """Return how many consumers each queue had at ``to_us``, or less if it had less after one of them had ended since
    ``from_us``."""
    ends = [c.to_us for connection in connections for c in connection.consumers if from_us <= c.to_us < to_us]
    counts = [consumers_at(connections, at_us) for at_us in (*ends, to_us)]
    return {queue: min(count.get(queue, 0) for count in counts) for queue in counts[-1]}


def is_connected(connections: Sequence[ConnectionLife], process: str, t_us: float) -> bool:
    """Return whether a process had a connection whose handshake had ended at that moment."""
    return any(
        connection.connected_us is not None and connection.connected_us <= t_us < connection.closed_us
        for connection in connections
        if connection.process == process
    )


def doing(connections: Sequence[ConnectionLife], process: str, t_us: float, at: str) -> str:
    """Return in words what the last connection of a process was doing at that moment, whose text is ``at``."""
    mine = [connection for connection in connections if connection.process == process and connection.opened_us <= t_us]
    if not mine:
        return "it had never connected"
    last = mine[-1]
    states = [text for from_us, text in last.states if from_us <= t_us] or ["was opened, and got no further"]
    return f"its last connection, to {last.node}, {states[-1]} ({at})"
