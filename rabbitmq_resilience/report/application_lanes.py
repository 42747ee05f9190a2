"""Prepare the processes of the user's application for the page: what each was doing, and when."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

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
        changes = [((t_us - origin_us) / 1e6, state) for t_us, state in _states(process_events, mine)]
        lanes.append(SwimLane(name, tuple(_intervals(changes, (end_us - origin_us) / 1e6))))
    return tuple(lanes)


def _states(events: Sequence[ApplicationEvent], connections: Sequence[ConnectionLife]) -> Iterator[tuple[float, str]]:
    """Yield what a process was doing from each moment on at which it may have changed. Connections that a process left
    open do not count for its next life."""
    ends_us = [*(event.t_us for event in events if event.event != "started"), math.inf]
    following = [*(event.t_us for event in events[1:]), math.inf]
    known: list[tuple[float, float, str]] = [
        (event.t_us, next_us, "reconnecting" if event.event == "started" else "gone")
        for event, next_us in zip(events, following, strict=True)
    ]
    for connection in connections:
        end_us = ends_us[bisect_right(ends_us, connection.opened_us)]
        stretches = (stretch for stretch in connection.stretches if stretch[0] < end_us)
        known += [(from_us, min(to_us, end_us), what) for from_us, to_us, what in stretches]
    edges = [(t_us, by, what) for from_us, to_us, what in known for t_us, by in ((from_us, 1), (to_us, -1))]
    counts: Counter[str] = Counter()
    for t_us, there in groupby(sorted(edges), key=lambda edge: edge[0]):
        for _, by, what in there:
            counts[what] += by
        if t_us < math.inf:
            yield t_us, next((state for state in STATES if counts[state] > 0), "gone")


def _intervals(changes: list[tuple[float, str]], end_s: float) -> Iterator[TimelineInterval]:
    """Yield an interval for each run of one state."""
    start_s, state = changes[0]
    for at_s, now in [*changes[1:], (end_s, "")]:
        if now != state:
            yield TimelineInterval(start_s, max(start_s, at_s), state)
            start_s, state = at_s, now
