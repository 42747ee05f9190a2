"""Prepare the load in addition to messages for the page: idle connections, and objects opened and closed at a rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from rabbitmq_resilience.history.events import ChurnEvent, Event, IdleEvent

Curves = dict[str, list[float | None]]


def idle_curves(events: Iterable[Event], moments_us: Sequence[float]) -> Curves:
    """Return the idle connections at each moment, connected and wanted; None before the first report."""
    reports = [event for event in events if isinstance(event, IdleEvent)]
    if not reports:
        return {}
    latest: dict[str, IdleEvent] = {}
    curves: Curves = {"connected": [], "wanted": []}
    waiting = iter([*reports, None])
    after = next(waiting)
    for moment_us in moments_us:
        while after is not None and after.t_us <= moment_us:
            latest[after.worker] = after
            after = next(waiting)
        curves["connected"].append(sum(event.connected for event in latest.values()) if latest else None)
        curves["wanted"].append(sum(event.wanted for event in latest.values()) if latest else None)
    return curves


def idle_lost(events: Iterable[Event]) -> int:
    """Return how many idle connections were lost in all."""
    return sum(event.lost for event in events if isinstance(event, IdleEvent))


def churn_curves(events: Iterable[Event], bucket_of: Callable[[int], int], *, buckets: int, bucket_s: float) -> Curves:
    """Return how many connections, channels, queues and bindings were opened and closed again in a second.

    Failed attempts have curves of their own. ``bucket_of`` returns the bucket of a moment in microseconds.
    """
    counts: dict[str, list[float]] = defaultdict(lambda: [0.0] * buckets)
    for event in events:
        if isinstance(event, ChurnEvent):
            failed = {f"{kind}, failed": count for kind, count in event.failed.items()}
            for name, count in {**event.done, **failed}.items():
                counts[name][bucket_of(event.t_us)] += count
    return {name: [round(count / bucket_s, 2) for count in counts[name]] for name in sorted(counts)}
