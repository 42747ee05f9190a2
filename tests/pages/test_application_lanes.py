"""The lanes of an application's processes: what each was doing, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rabbitmq_resilience.history.events import ApplicationEvent, Event, WireEvent
from rabbitmq_resilience.report.application_lanes import application_lanes

S = 1_000_000


def process(at_s: float, event: str, name: str = "web-0") -> Event:
    return ApplicationEvent(t_us=int(at_s * S), process=name, event=event)


def wire(at_s: float, what: str, *, connection: int = 1, channel: int = 0, **fields: Any) -> Event:
    return WireEvent(t_us=int(at_s * S), connection=connection, what=what, channel=channel, fields=fields)


def opened(at_s: float, connection: int, name: str = "web-0") -> Event:
    return wire(at_s, "opened", connection=connection, process=name, node="a1")


def states(*events: Event) -> Sequence[tuple[float, float, str]]:
    (lane,) = application_lanes(events, origin_us=0, end_us=20 * S)
    return [(one.start_s, one.end_s, one.state) for one in lane.intervals]


def test_a_process_connects_consumes_and_is_gone() -> None:
    found = states(
        process(1, "started"),
        opened(2, 1),
        wire(3, "connected"),
        wire(4, "consuming", channel=1, consumer="tag", queue="q"),
        wire(8, "channel_closed", channel=1, by="client"),
        wire(9, "closed"),
        process(12, "ended"),
    )
    assert found == [
        (1, 3, "reconnecting"),
        (3, 4, "connected"),
        (4, 8, "consuming"),
        (8, 9, "connected"),
        (9, 12, "reconnecting"),
        (12, 20, "gone"),
    ]


def test_another_connection_keeps_it_connected_and_a_block_shows() -> None:
    found = states(
        process(1, "started"),
        *(opened(1, number) for number in (1, 2)),
        *(wire(2, "connected", connection=number) for number in (1, 2)),
        wire(4, "lost", connection=1, by="broker"),
        wire(6, "blocked", connection=2, detail="memory"),
        wire(7, "unblocked", connection=2),
        wire(9, "lost", connection=2, by="broker"),
    )
    assert found == [
        (1, 2, "reconnecting"),
        (2, 6, "connected"),
        (6, 7, "blocked"),
        (7, 9, "connected"),
        (9, 20, "reconnecting"),
    ]


def test_a_connection_that_a_process_left_open_is_not_that_of_its_next_life() -> None:
    found = states(
        process(1, "started"),
        opened(1, 1),
        wire(2, "connected"),
        process(4, "killed"),
        process(5, "started"),
        wire(8, "lost", by="client"),
    )
    assert found == [(1, 2, "reconnecting"), (2, 4, "connected"), (4, 5, "gone"), (5, 20, "reconnecting")]


def test_each_process_has_its_lane_and_connections_of_others_have_none() -> None:
    events = [
        process(1, "started", "b-0"),
        process(1, "started", "a-0"),
        opened(2, 7, "stranger"),
        wire(3, "connected"),
    ]
    assert [lane.name for lane in application_lanes(events, origin_us=0, end_us=5 * S)] == ["a-0", "b-0"]
    assert application_lanes([], origin_us=0, end_us=S) == ()
