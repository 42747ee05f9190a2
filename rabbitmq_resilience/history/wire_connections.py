"""Follow the connections of the user's application, and their consumers, from what a tap saw of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rabbitmq_resilience.history.events import WireEvent

#: A consumer of a connection: its channel and its tag.
_Tag = tuple[int, str]


@dataclass
class ConsumerLife:
    """A consumer of ``queue``, from when to when."""

    queue: str
    from_us: float
    to_us: float = math.inf


@dataclass
class ConnectionLife:
    """A connection of ``process`` to ``node``. ``connected_us`` is None if its handshake was not seen to end.
    ``states``: in words what was known of it, each from some moment on. ``changes``: what a worker with this connection
    would have recorded of it, each with its time."""

    process: str
    node: str
    opened_us: float
    connected_us: float | None = None
    closed_us: float = math.inf
    #: When it ended, if not by a close that the client asked for.
    lost_us: float = math.inf
    consumers: list[ConsumerLife] = field(default_factory=list)
    unreadable: str = ""
    states: list[tuple[float, str]] = field(default_factory=list)
    changes: list[tuple[int, str]] = field(default_factory=list)
    _open: dict[_Tag, ConsumerLife] = field(default_factory=dict)
    _end_words: str = ""

    def is_open(self, t_us: float) -> bool:
        """Return whether its handshake had ended, and nothing had ended the connection."""
        return self.connected_us is not None and self.connected_us <= t_us < self.closed_us

    @property
    def stretches(self) -> Iterator[tuple[float, float, str]]:
        """Yield from when to when it was open, and what it was doing: blocked, consuming or connected."""
        if self.connected_us is None:
            return
        known = {self.connected_us, *(t_us for t_us, _ in self.changes)}
        known |= {t_us for one in self.consumers for t_us in (one.from_us, one.to_us)}
        moments = sorted(t_us for t_us in known if self.is_open(t_us))
        for from_us, to_us in itertools.pairwise([*moments, self.closed_us]):
            yield from_us, to_us, self._doing(from_us)

    def _doing(self, t_us: float) -> str:
        said = [what for at_us, what in self.changes if at_us <= t_us]
        if said[-1] == "blocked":
            return "blocked"
        return "consuming" if any(one.from_us <= t_us < one.to_us for one in self.consumers) else "connected"

    def take(self, event: WireEvent) -> None:
        """Follow one of its events. What a client says after the broker's end has no effect."""
        if self.closed_us < math.inf and event.what not in _ENDS:
            return
        worker_event = _OF_WORKER.get(event.what)
        if worker_event is not None and (worker_event != _LOST or not self.is_lost):
            self.changes.append((event.t_us, worker_event))
        if (follow := _FOLLOWED.get(event.what)) is not None:
            follow(self, event)

    @property
    def is_lost(self) -> bool:
        return any(what == _LOST for _, what in self.changes)

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
        self._close(event.t_us, lost=fields["by"] == "broker")

    def _refused(self, event: WireEvent) -> None:
        self.states.append((event.t_us, f"was refused: {event.fields['detail']}"))

    def _lost(self, event: WireEvent) -> None:
        if self.closed_us == math.inf:
            by = event.fields["by"]
            self._end_words = f"was lost, by the {by}'s end"
            kept = ", and the client kept it" if by == "broker" else ""
            self.states.append((event.t_us, self._end_words + kept))
        self._close(event.t_us)

    def _closed(self, event: WireEvent) -> None:
        if self._end_words:
            self.states.append((event.t_us, self._end_words))
        self._close(event.t_us)

    def _unread(self, event: WireEvent) -> None:
        self.unreadable = str(event.fields.get("detail", event.what))

    def _close(self, t_us: float, *, lost: bool = True) -> None:
        if lost and self.closed_us == math.inf:
            self.lost_us = t_us
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

_LOST = "connection_lost"
_ENDS = frozenset({"lost", "closed", "unreadable", "not_copied"})

#: What a worker records when the same happens to its own connection. A tap says ``lost`` when one side has ended it,
#: which the other may not notice, and ``closed`` at the end of each.
_OF_WORKER = {name: name for name in ("connected", "blocked", "unblocked")} | {"lost": _LOST, "closed": _LOST}


def followed(events: Iterable[WireEvent]) -> Sequence[ConnectionLife]:
    """Return the connections of these events, in the order in which they were opened."""
    found: dict[int, ConnectionLife] = {}
    for event in events:
        if event.what == "opened":
            found[event.connection] = ConnectionLife(event.fields["process"], event.fields["node"], event.t_us)
        elif event.connection in found:
            found[event.connection].take(event)
    return tuple(found.values())
