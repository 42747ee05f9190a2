"""What goes on beside the messages of a load: connections that do nothing, and what is opened and closed at a rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from rabbitmq_resilience.record.events import ChurnEvent, Event, IdleEvent

Curves = dict[str, list[float | None]]


def idle_curves(events: Iterable[Event], moments_us: Sequence[float]) -> Curves:
    """How many idle connections are there at each moment, beside how many are wanted; None before the first is told."""
    told = [event for event in events if isinstance(event, IdleEvent)]
    if not told:
        return {}
    there: dict[str, IdleEvent] = {}
    curves: Curves = {"connected": [], "wanted": []}
    waiting = iter([*told, None])
    after = next(waiting)
    for moment_us in moments_us:
        while after is not None and after.t_us <= moment_us:
            there[after.worker] = after
            after = next(waiting)
        curves["connected"].append(sum(event.connected for event in there.values()) if there else None)
        curves["wanted"].append(sum(event.wanted for event in there.values()) if there else None)
    return curves


def idle_lost(events: Iterable[Event]) -> int:
    """How many idle connections were lost in all."""
    return sum(event.lost for event in events if isinstance(event, IdleEvent))


def churn_curves(events: Iterable[Event], bucket_of: Callable[[int], int], *, buckets: int, bucket_s: float) -> Curves:
    """Connections, channels, queues and bindings that were opened and closed again, a second; what failed has curves of
    its own. ``bucket_of`` a moment in microseconds."""
    counts: dict[str, list[float]] = defaultdict(lambda: [0.0] * buckets)
    for event in events:
        if isinstance(event, ChurnEvent):
            failed = {f"{kind}, failed": count for kind, count in event.failed.items()}
            for name, count in {**event.done, **failed}.items():
                counts[name][bucket_of(event.t_us)] += count
    return {name: [round(count / bucket_s, 2) for count in counts[name]] for name in sorted(counts)}
