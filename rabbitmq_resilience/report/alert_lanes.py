"""Prepare the user's active alerts for the page."""

from __future__ import annotations

from rabbitmq_resilience.history.recorded_alerts import Active, RecordedAlerts
from rabbitmq_resilience.report.timeline import SwimLane, TimelineInterval

#: If there would be more lanes, all alerts of a name share one.
LANES_MAX = 24
#: The labels that identify an alert for people.
_IDENTIFYING = ("node", "queue")


def alert_lanes(alerts: RecordedAlerts | None, *, origin_us: int) -> tuple[SwimLane, ...]:
    """Return a lane for each alert that ever was pending or fired, by its name and its identifying labels."""
    active = list(alerts.active) if alerts else []
    names = {id(one): _name(one) for one in active}
    if len(set(names.values())) > LANES_MAX:
        names = {id(one): one.alert for one in active}
    lanes: dict[str, list[TimelineInterval]] = {}
    for one in active:
        interval = TimelineInterval((one.start_us - origin_us) / 1e6, (one.end_us - origin_us) / 1e6, one.state)
        lanes.setdefault(names[id(one)], []).append(interval)
    apart_s = max((group.apart_us / 1e6 for group in alerts.groups), default=0.0) if alerts else 0.0
    return tuple(SwimLane(name, tuple(_joined(found, apart_s))) for name, found in lanes.items())


def _name(one: Active) -> str:
    """Return a short name of an alert, with its identifying labels first, as there is little room."""
    return " ".join([*(one.labels[label] for label in _IDENTIFYING if label in one.labels), one.alert])


def _joined(intervals: list[TimelineInterval], apart_s: float) -> list[TimelineInterval]:
    """Return the intervals in order and without overlap; firing takes precedence over pending.

    A pending interval lasts until the alert fires at the next evaluation.
    """
    found: list[TimelineInterval] = []
    for one in sorted(intervals, key=lambda interval: (interval.start_s, interval.state)):
        last = found[-1] if found else None
        fires = last is not None and (last.state, one.state) == ("pending", "firing")
        if last is not None and one.start_s <= last.end_s + (apart_s if fires else 0):
            if last.state in (one.state, "firing"):
                found[-1] = TimelineInterval(last.start_s, max(last.end_s, one.end_s), last.state)
                continue
            found[-1] = TimelineInterval(last.start_s, one.start_s, last.state)
        found.append(one)
    return found
