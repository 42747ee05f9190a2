"""Decide whether this machine alone may have made an event late: brokers stand still while they await a processor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.machine_load import describe_busy, describe_others, disturbed_s, looks
from rabbitmq_resilience.checkers.times import Period, left, times
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.history.events import MachineEvent

#: A busy machine explains at most this many times the allowed time.
LATE_TIMES_MAX = 2
#: How late an event is that never came is not known. A broker that hangs waits for a processor too, for its timers and
#: connections (0.04 to 0.23 of the time on a very busy machine), but not for half of the time.
STARVED_PART_MIN = 0.5


@dataclass(frozen=True)
class Late:
    """An event that did not come in time. ``excuse``: why this machine may have made it late; empty if it did not."""

    text: str
    excuse: str


def of_this_machine(
    facts: Facts,
    nodes: Iterable[str],
    start_us: float,
    end_us: float,
    *,
    allowed_s: float,
    came: bool,
    without: Sequence[Period] = (),
) -> str:
    """Return why this machine may have made an event late; empty if it did not.

    The event was due ``allowed_s`` after the start. It came at the end, or (``came`` is false) had not come by then.
    This machine may be the cause only if the event is at most twice as late as allowed, and in one of two cases. First,
    one of the ``nodes`` on which it depended waited for a processor for long enough to explain the delay; if it never
    came, also for half of the time or more. Second, it came, and the time that other programs left undisturbed is at
    most the allowed time; they took much of the machine on average, or in whole samples that are long enough to explain
    the delay. ``without``: times that do not count.
    """
    took_s = sum(seconds(end - start) for start, end in left((start_us, end_us), times(without)))
    if took_s > LATE_TIMES_MAX * allowed_s:
        return ""
    waited = {node: _waited_s(facts, node, start_us, end_us, without) for node in nodes}
    longest = max(sorted(waited), key=waited.__getitem__, default="")
    waited_s = waited.get(longest, 0.0)
    if waited_s and took_s - waited_s <= allowed_s and (came or waited_s >= STARVED_PART_MIN * took_s):
        return f"{longest} waited for a processor of this machine for {waited_s:.3g} s of that"
    if not came or took_s - disturbed_s(facts, start_us, end_us, without=without) > allowed_s:
        return ""
    return describe_others(facts, start_us, end_us, without=without) or describe_busy(
        facts, start_us, end_us, least_s=took_s - allowed_s, without=without
    )


def seen_late(
    facts: Facts, nodes: Iterable[str], start_us: float, looks: Iterable[tuple[float, bool]], *, allowed_s: float
) -> str:
    """Return the same for an event that was observed by ``looks``: (moment, whether the event had come).

    The delay counts until the last look without the event, not until the next look.
    """
    until_us, came = start_us + allowed_s * 1e6, False
    for t_us, had_come in looks:
        if had_come:
            came = True
            break
        until_us = max(until_us, t_us)
    return of_this_machine(facts, nodes, start_us, until_us, allowed_s=allowed_s, came=came)


def kept_from_running(facts: Facts, start_us: float, end_us: float) -> str:
    """Return which broker this machine kept from running for half of that time or more, in words; empty if none."""
    took_s = seconds(end_us - start_us)
    nodes = facts.cluster.nodes if facts.cluster else ()
    waited = {node: _waited_s(facts, node, start_us, end_us, ()) for node in nodes}
    node = max(sorted(waited), key=waited.__getitem__, default="")
    if not node or took_s <= 0 or waited[node] < STARVED_PART_MIN * took_s:
        return ""
    return f"{node} waited for a processor for {waited[node] / took_s:.0%} of that time"


def _waited_s(facts: Facts, node: str, start_us: float, end_us: float, without: Sequence[Period]) -> float:
    """Return for how many seconds, at most, that broker was ready to run and had no processor; 0 without samples."""
    spans, waited_s = left((start_us, end_us), times(without)), 0.0
    for look in looks(facts.of_kind(MachineEvent), origin_us=facts.origin_us):
        value = look.event.waited_s.get(node) if isinstance(look.event.waited_s, Mapping) else None
        if isinstance(value, int | float) and 0 <= value < math.inf:  # values of a damaged record do not count
            waited_s += min(look.within_s(spans), value)
    return waited_s
