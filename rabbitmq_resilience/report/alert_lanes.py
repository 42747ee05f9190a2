"""Prepare the user's active alerts for the page."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rabbitmq_resilience.history.recorded_alerts import Active, RecordedAlerts
from rabbitmq_resilience.report.timeline import SwimLane, TimelineInterval

#: If there would be more lanes, all alerts of a name share one.
LANES_MAX = 24
#: The labels that identify an alert for people.
_IDENTIFYING = ("node", "queue")


def alert_lanes(alerts: RecordedAlerts | None, *, origin_us: int) -> tuple[SwimLane, ...]:
    """Return a lane for each alert that ever was pending or fired, by its name and its identifying labels."""
    if alerts is None:
        return ()
    lanes: dict[str, list[TimelineInterval]] = {}
    names = {_name(one) for one in alerts.active}
    for one, apart_s in _together(alerts):
        name = one[0].alert if len(names) > LANES_MAX else _name(one[0])
        seconds = [
            TimelineInterval((each.start_us - origin_us) / 1e6, (each.end_us - origin_us) / 1e6, each.state)
            for each in one
        ]
        lanes.setdefault(name, []).extend(_until_it_fires(seconds, apart_s))
    return tuple(SwimLane(name, tuple(_overlaid(found))) for name, found in lanes.items())


def _together(alerts: RecordedAlerts) -> Iterator[tuple[list[Active], float]]:
    """Yield the times of each alert with its labels, and how far the evaluations of its rule are apart, in seconds."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], list[Active]] = {}
    for one in alerts.active:
        found.setdefault((one.alert, frozenset(one.labels.items())), []).append(one)
    for (alert, _), mine in found.items():
        apart_us = max((group.apart_us for group in alerts.groups if alert in group.alerts), default=0)
        yield mine, apart_us / 1e6


def _name(one: Active) -> str:
    """Return a short name of an alert, with its identifying labels first, as there is little room."""
    return " ".join([*(one.labels[label] for label in _IDENTIFYING if label in one.labels), one.alert])


def _until_it_fires(intervals: Iterable[TimelineInterval], apart_s: float) -> list[TimelineInterval]:
    """Return the intervals of one alert. While it was pending lasts until it fires at the next evaluation."""
    ordered = sorted(intervals, key=lambda interval: interval.start_s)
    for number, (one, following) in enumerate(itertools.pairwise(ordered)):
        fires = (one.state, following.state) == ("pending", "firing")
        if fires and one.end_s < following.start_s <= one.end_s + apart_s:
            ordered[number] = replace(one, end_s=following.start_s)
    return ordered


def _overlaid(intervals: Sequence[TimelineInterval]) -> list[TimelineInterval]:
    """Return the intervals of a lane in order and without overlap: firing while any of its alerts fires, else pending
    while any is."""
    found: list[TimelineInterval] = []
    edges = sorted({edge for one in intervals for edge in (one.start_s, one.end_s)})
    for start_s, end_s in itertools.pairwise(edges):
        states = {one.state for one in intervals if one.start_s <= start_s and end_s <= one.end_s}
        state = "firing" if "firing" in states else "pending"
        last = found[-1] if found else None
        if states and last is not None and (last.state, last.end_s) == (state, start_s):
            found[-1] = replace(last, end_s=end_s)
        elif states:
            found.append(TimelineInterval(start_s, end_s, state))
    moments = (one for one in intervals if one.start_s == one.end_s)
    apart = [one for one in moments if not any(each.start_s <= one.start_s <= each.end_s for each in found)]
    return sorted([*found, *apart], key=lambda one: one.start_s)
