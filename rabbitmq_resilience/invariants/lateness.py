"""Whether this machine alone may have made something late: brokers do nothing while they wait for a processor."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.record.events import ClusterEvent, MachineEvent

#: What other programs take of the processors, as a part of all of them, before what is slow may be their doing.
OTHERS_CPU_MIN = 0.25

_NAMED_MAX = 2
#: How much later than allowed a busy machine may make it.
LATE_TIMES_MAX = 2
#: Of what never came it is not known how late it was. A broker that hangs waits for a processor too, for its timers and
#: connections (0.04 to 0.23 of the time on a very busy machine), and not for half of the time.
STARVED_PART_MIN = 0.5


def of_this_machine(
    facts: Facts, nodes: Iterable[str], start_us: float, end_us: float, *, allowed_s: float, came: bool
) -> str:
    """Why it may have been this machine that made late what was to come ``allowed_s`` after the start, and came at the
    end, or had not come by then; empty if it was not.

    It may where it is not twice as late, and one of the ``nodes`` on which it depended waited for a processor for so
    long that it would have been in time without that (of what never came: for half of the time and more), or where it
    came while other programs took much of this machine.
    """
    took_s = seconds(end_us - start_us)
    if took_s > LATE_TIMES_MAX * allowed_s:
        return ""
    waited = {node: _waited_s(facts, node, start_us, end_us) for node in nodes}
    longest = max(sorted(waited), key=waited.__getitem__, default="")
    waited_s = waited.get(longest, 0.0)
    if took_s - waited_s <= allowed_s and (came or waited_s >= STARVED_PART_MIN * took_s):
        return f"{longest} waited for a processor of this machine for {waited_s:.3g} s of that"
    return told_of_others(facts, start_us, end_us) if came else ""


def kept_from_running(facts: Facts, start_us: float, end_us: float) -> str:
    """Which broker this machine kept from running for half of that time and more; empty if none."""
    took_s = seconds(end_us - start_us)
    waited = {node: _waited_s(facts, node, start_us, end_us) for node in (facts.cluster.nodes if facts.cluster else ())}
    node = max(sorted(waited), key=waited.__getitem__, default="")
    if not node or took_s <= 0 or waited[node] < STARVED_PART_MIN * took_s:
        return ""
    return f"{node} waited for a processor for {waited[node] / took_s:.0%} of that time"


def others_cpu(facts: Facts, start_us: float, end_us: float) -> float:
    """The part of the machine's processors that other programs took meanwhile, at the most; 0 where nobody looked, and
    where brokers in containers count as others."""
    if end_us <= start_us or any(event.driver not in (None, "local") for event in facts.of_kind(ClusterEvent)):
        return 0.0

    def told(event: MachineEvent, long_s: float) -> float | None:
        return event.others * long_s if isinstance(event.others, int | float) else None

    return _most_s(facts, start_us, end_us, told) / seconds(end_us - start_us)


def told_of_others(facts: Facts, start_us: float, end_us: float) -> str:
    """What other programs took of the machine meanwhile, and which; empty where it was not much."""
    others = others_cpu(facts, start_us, end_us)
    if others < OTHERS_CPU_MIN:
        return ""
    looks = list(facts.of_kind(MachineEvent))
    moment = attrgetter("t_us")
    first, last = bisect.bisect_right(looks, start_us, key=moment), bisect.bisect_left(looks, end_us, key=moment)
    named = ", ".join(names_of_others(looks[first : last + 1]))
    return f"other programs took up to {others:.0%} of this machine's processors then{named and f' ({named})'}"


def names_of_others(looks: Iterable[MachineEvent]) -> tuple[str, ...]:
    """Of the programs that took most of the machine meanwhile."""
    used: Counter[str] = Counter()
    for look in looks:
        if isinstance(look.by, Mapping):  # a damaged record tells nothing
            used.update({name: part for name, part in look.by.items() if isinstance(part, int | float)})
    return tuple(name for name, _ in used.most_common(_NAMED_MAX))


def _waited_s(facts: Facts, node: str, start_us: float, end_us: float) -> float:
    """For how long, at the most, that broker was ready to run meanwhile, and this machine had no processor for it; 0
    where nobody looked."""

    def told(event: MachineEvent, _: float) -> float | None:
        return event.waited_s.get(node) if isinstance(event.waited_s, Mapping) else None

    return _most_s(facts, start_us, end_us, told)


def _most_s(
    facts: Facts, start_us: float, end_us: float, told_s: Callable[[MachineEvent, float], float | None]
) -> float:
    """What may lie between the two moments of what each event tells (with the seconds since the one before). It tells
    of all that time, and not when in it."""
    most_s, begun_us = 0.0, facts.origin_us
    for event in facts.of_kind(MachineEvent):
        shared_s = seconds(max(0.0, min(event.t_us, end_us) - max(begun_us, start_us)))
        told = told_s(event, seconds(event.t_us - begun_us)) if shared_s else None
        if isinstance(told, int | float) and 0 <= told < math.inf:  # a damaged record tells nothing
            most_s += min(shared_s, told)
        begun_us = event.t_us
    return most_s
