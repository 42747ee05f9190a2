"""Prepare the processes of the user's application for the page: what each was doing, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from rabbitmq_resilience.history.events import ApplicationEvent, Event, WireEvent
from rabbitmq_resilience.history.wire_connections import ConnectionLife, followed
from rabbitmq_resilience.report.timeline import SwimLane, TimelineInterval

#: The states of a process, the one that is shown first where several are true.
STATES = ("gone", "blocked", "consuming", "connected", "reconnecting")


def application_lanes(events: Iterable[Event], *, origin_us: int, end_us: int) -> tuple[SwimLane, ...]:
    """Return a lane for each process of an application; none if there is no application."""
    known = list(events)
    connections = followed(event for event in known if isinstance(event, WireEvent))
    own: dict[str, list[ApplicationEvent]] = {}
    for event in known:
        if isinstance(event, ApplicationEvent):
            own.setdefault(event.process, []).append(event)
    lanes = []
    for name, process_events in sorted(own.items()):
        mine = [connection for connection in connections if connection.process == name]
        moments = {event.t_us for event in process_events}.union(*(each.moments_us for each in mine))
        changes = [
            ((t_us - origin_us) / 1e6, _state(process_events, mine, t_us))
            for t_us in sorted(moments)
            if process_events[0].t_us <= t_us < math.inf
        ]
        lanes.append(SwimLane(name, tuple(_intervals(changes, (end_us - origin_us) / 1e6))))
    return tuple(lanes)


def _state(events: Sequence[ApplicationEvent], connections: Sequence[ConnectionLife], t_us: float) -> str:
    """Return what a process was doing at a moment. Connections of its earlier lives do not count."""
    last = [event for event in events if event.t_us <= t_us][-1]
    if last.event != "started":
        return "gone"
    of_life = (each for each in connections if each.opened_us >= last.t_us and each.is_open(t_us))
    return min((each.state(t_us) for each in of_life), key=STATES.index, default="reconnecting")


def _intervals(changes: list[tuple[float, str]], end_s: float) -> Iterator[TimelineInterval]:
    """Yield an interval for each run of one state."""
    start_s, state = changes[0]
    for at_s, now in [*changes[1:], (end_s, "")]:
        if now != state:
            yield TimelineInterval(start_s, max(start_s, at_s), state)
            start_s, state = at_s, now
