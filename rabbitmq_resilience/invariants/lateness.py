"""Whether this machine alone may have made something late: brokers do nothing while they wait for a processor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.machine import disturbed_s, looks, told_of_others
from rabbitmq_resilience.invariants.times import Period, left, times
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.record.events import MachineEvent

#: How much later than allowed a busy machine may make it.
LATE_TIMES_MAX = 2
#: Of what never came it is not known how late it was. A broker that hangs waits for a processor too, for its timers and
#: connections (0.04 to 0.23 of the time on a very busy machine), and not for half of the time.
STARVED_PART_MIN = 0.5


@dataclass(frozen=True)
class Late:
    """What did not come in time, and why it may have been this machine that made it late: empty if it was not."""

    told: str
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
    """Why it may have been this machine that made late what was to come ``allowed_s`` after the start, and came at the
    end, or had not come by then; empty if it was not.

    It may where it is not twice as late, and one of the ``nodes`` on which it depended waited for a processor for so
    long that it would have been in time without that (of what never came: for half of the time and more), or where it
    came while other programs took much of this machine, and had as much time as is allowed neither before they did nor
    after. ``without``: times that do not count.
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
    return told_of_others(facts, start_us, end_us, without=without)


def seen_late(
    facts: Facts, nodes: Iterable[str], start_us: float, looks: Iterable[tuple[float, bool]], *, allowed_s: float
) -> str:
    """The same of what ``looks`` tell: when somebody looked, and whether it had come. It is late for as long as was
    seen, and not until the next look."""
    until_us, came = start_us + allowed_s * 1e6, False
    for t_us, had_come in looks:
        if had_come:
            came = True
            break
        until_us = max(until_us, t_us)
    return of_this_machine(facts, nodes, start_us, until_us, allowed_s=allowed_s, came=came)


def kept_from_running(facts: Facts, start_us: float, end_us: float) -> str:
    """Which broker this machine kept from running for half of that time and more; empty if none."""
    took_s = seconds(end_us - start_us)
    nodes = facts.cluster.nodes if facts.cluster else ()
    waited = {node: _waited_s(facts, node, start_us, end_us, ()) for node in nodes}
    node = max(sorted(waited), key=waited.__getitem__, default="")
    if not node or took_s <= 0 or waited[node] < STARVED_PART_MIN * took_s:
        return ""
    return f"{node} waited for a processor for {waited[node] / took_s:.0%} of that time"


def _waited_s(facts: Facts, node: str, start_us: float, end_us: float, without: Sequence[Period]) -> float:
    """For how long, at the most, that broker was ready to run meanwhile, and this machine had no processor for it; 0
    where nobody looked."""
    spans, waited_s = left((start_us, end_us), times(without)), 0.0
    for look in looks(facts.of_kind(MachineEvent), origin_us=facts.origin_us):
        told = look.event.waited_s.get(node) if isinstance(look.event.waited_s, Mapping) else None
        if isinstance(told, int | float) and 0 <= told < math.inf:  # a damaged record tells nothing
            waited_s += min(look.within_s(spans), told)
    return waited_s
