"""What other programs had of this machine's processors. Looks tell of the time since the one before, and not when in it
something was taken: so it is the most that they can have had in a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.times import Period, left, times
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.record.events import ClusterEvent, MachineEvent

#: What other programs take of the processors, as a part of all of them, before what is slow may be their doing.
OTHERS_CPU_MIN = 0.25
#: So many are named, each with so much of what all of them took.
_NAMED_MAX, _NAMED_PART_MIN = 2, 0.25
_ROUNDING_S = 1e-9


@dataclass(frozen=True)
class Look:
    """At the machine, and the time of which it tells. What a damaged one says counts as nothing."""

    start_us: float
    end_us: float
    event: MachineEvent

    @property
    def long_s(self) -> float:
        return max(0.0, seconds(self.end_us - self.start_us))

    @property
    def others_s(self) -> float:
        """For how long others would have had all processors, to take what they took."""
        return part(self.event.others) * self.long_s

    def by_s(self) -> Iterator[tuple[str, float]]:
        """The same of each program that is named."""
        named = self.event.by if isinstance(self.event.by, Mapping) else {}
        return ((name, part(taken) * self.long_s) for name, taken in named.items())

    def within_s(self, spans: Sequence[Period]) -> float:
        return sum(seconds(max(0.0, min(self.end_us, end) - max(self.start_us, start))) for start, end in spans)


def part(told: Any) -> float:
    """Of the processors; 0 for what is none."""
    return float(told) if isinstance(told, int | float) and 0 <= told <= 1 else 0.0


def looks(events: Iterable[MachineEvent], *, origin_us: float) -> Iterator[Look]:
    """Early records do not tell over which time a look goes: then it is since the one before, or since the origin."""
    begun_us = origin_us
    for event in events:
        over_s = event.over_s if isinstance(event.over_s, int | float) and event.over_s > 0 else None
        yield Look(begun_us if over_s is None else max(begun_us, event.t_us - over_s * 1e6), event.t_us, event)
        begun_us = event.t_us


def looks_of(facts: Facts) -> Sequence[Look]:
    """None where brokers in containers or on other machines count as others, or are not seen."""
    if any(event.driver not in (None, "local") for event in facts.of_kind(ClusterEvent)):
        return ()
    return list(looks(facts.of_kind(MachineEvent), origin_us=facts.origin_us))


def others_cpu(facts: Facts, start_us: float, end_us: float, *, without: Sequence[Period] = ()) -> float:
    """The part of the processors that other programs took meanwhile, at the most; 0 where nobody looked. ``without``:
    times that do not count."""
    spans = left((start_us, end_us), times(without))
    long_s = sum(seconds(end - start) for start, end in spans)
    taken_s = sum(min(look.within_s(spans), look.others_s) for look in looks_of(facts))
    return taken_s / long_s if long_s else 0.0


def disturbed_s(facts: Facts, start_us: float, end_us: float, *, without: Sequence[Period] = ()) -> float:
    """For how long others can have taken ``OTHERS_CPU_MIN`` meanwhile, at the most."""
    spans = left((start_us, end_us), times(without))
    return sum(min(look.within_s(spans), look.others_s / OTHERS_CPU_MIN) for look in looks_of(facts))


def could_take(facts: Facts, windows: Iterable[Period]) -> bool:
    """Whether others can have taken ``OTHERS_CPU_MIN`` in each of the windows, which have no time in common. What they
    took in one of them they did not take in another."""
    seen = looks_of(facts)
    left_s = [look.others_s for look in seen]
    for window in sorted(windows):
        lacking_s = OTHERS_CPU_MIN * seconds(window[1] - window[0])
        for i, look in enumerate(seen):
            taken_s = min(lacking_s, left_s[i], look.within_s([window]))
            left_s[i] -= taken_s
            lacking_s -= taken_s
        if lacking_s > _ROUNDING_S:
            return False
    return True


def told_of_others(facts: Facts, start_us: float, end_us: float, *, without: Sequence[Period] = ()) -> str:
    """What other programs took meanwhile, and which; empty where it was not much."""
    others = others_cpu(facts, start_us, end_us, without=without)
    if others < OTHERS_CPU_MIN:
        return ""
    spans = left((start_us, end_us), times(without))
    named = ", ".join(names_of_others([look for look in looks_of(facts) if look.within_s(spans)]))
    return f"other programs took up to {others:.0%} of this machine's processors then{named and f' ({named})'}"


def names_of_others(seen: Sequence[Look]) -> list[str]:
    """Of those programs that took most of what others had."""
    used_s: defaultdict[str, float] = defaultdict(float)
    for look in seen:
        for name, taken_s in look.by_s():
            used_s[name] += taken_s
    least_s = _NAMED_PART_MIN * sum(look.others_s for look in seen)
    most = sorted((name for name, taken_s in used_s.items() if taken_s >= least_s > 0), key=used_s.__getitem__)
    return most[-_NAMED_MAX:][::-1]
