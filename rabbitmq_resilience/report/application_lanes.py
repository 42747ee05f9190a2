"""Prepare the processes of the user's application for the page: what each was doing, and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rabbitmq_resilience.history.events import ApplicationEvent, Event, WireEvent
from rabbitmq_resilience.report.timeline import SwimLane, TimelineInterval

#: The states of a process, the one that is shown first where several are true.
STATES = ("gone", "blocked", "consuming", "connected", "reconnecting")


@dataclass
class _Process:
    """What is known of a process at one moment. ``open``: by connection the number of its consumers; only connections
    whose handshake has ended."""

    name: str
    runs: bool = False
    open: dict[int, set[tuple[int, str]]] = field(default_factory=dict)
    blocked: set[int] = field(default_factory=set)

    @property
    def state(self) -> str:
        if not self.runs:
            return "gone"
        if self.blocked & self.open.keys():
            return "blocked"
        if any(self.open.values()):
            return "consuming"
        return "connected" if self.open else "reconnecting"

    def take(self, event: WireEvent) -> None:
        """Follow an event of one of its connections."""
        number, consumers = event.connection, self.open.get(event.connection, set())
        match event.what:
            case "connected":
                self.open[number] = set()
            case "consuming":
                consumers.add((event.channel, event.fields["consumer"]))
            case "cancelled":
                consumers.discard((event.channel, event.fields["consumer"]))
            case "channel_closed":
                consumers.difference_update({key for key in consumers if key[0] == event.channel})
            case "blocked":
                self.blocked.add(number)
            case "unblocked":
                self.blocked.discard(number)
            case "connection_closed" | "lost" | "closed":
                self.open.pop(number, None)
            case _:
                pass


def application_lanes(events: Iterable[Event], *, origin_us: int, end_us: int) -> tuple[SwimLane, ...]:
    """Return a lane for each process of an application; none if there is no application."""
    processes: dict[str, _Process] = {}
    changes: dict[str, list[tuple[float, str]]] = {}
    for t_us, process in _changed(events, processes):
        changes.setdefault(process.name, []).append(((t_us - origin_us) / 1e6, process.state))
    end_s = (end_us - origin_us) / 1e6
    return tuple(SwimLane(name, tuple(_intervals(changes[name], end_s))) for name in sorted(changes))


def _changed(events: Iterable[Event], processes: dict[str, _Process]) -> Iterator[tuple[int, _Process]]:
    """Yield a process after each event that may have changed its state."""
    owner: dict[int, _Process] = {}
    for event in events:
        if isinstance(event, ApplicationEvent):
            process = processes.setdefault(event.process, _Process(event.process))
            process.runs = event.event == "started"
            if not process.runs:
                process.open.clear()
            yield event.t_us, process
        elif isinstance(event, WireEvent):
            if event.what == "opened" and event.fields["process"] in processes:
                owner[event.connection] = processes[event.fields["process"]]
            elif (process_of := owner.get(event.connection)) is not None:
                process_of.take(event)
                yield event.t_us, process_of


def _intervals(changes: list[tuple[float, str]], end_s: float) -> Iterator[TimelineInterval]:
    """Yield an interval for each run of one state."""
    start_s, state = changes[0]
    for at_s, now in [*changes[1:], (end_s, "")]:
        if now != state:
            yield TimelineInterval(start_s, max(start_s, at_s), state)
            start_s, state = at_s, now
