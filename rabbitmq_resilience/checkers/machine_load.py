"""Estimate how much of this machine's processors other programs used.

A sample covers the time since the sample before and does not show when in that time something ran. So all results are
upper bounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.times import Period, left, times
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.history.events import ClusterEvent, MachineEvent

#: If other programs take this part of all processors, they may be the cause of a delay.
OTHERS_CPU_MIN = 0.25
#: How many programs are named at most, and the part of the others' use that each must have.
_NAMED_MAX, _NAMED_PART_MIN = 2, 0.25
_ROUNDING_S = 1e-9


@dataclass(frozen=True)
class Look:
    """A sample of the machine, and the time that it covers. Values of a damaged sample count as 0."""

    start_us: float
    end_us: float
    event: MachineEvent

    @property
    def long_s(self) -> float:
        return max(0.0, seconds(self.end_us - self.start_us))

    @property
    def others_s(self) -> float:
        """Return the use by other programs, as the seconds for which they would have had all processors."""
        return part(self.event.others) * self.long_s

    def by_s(self) -> Iterator[tuple[str, float]]:
        """Yield (name, seconds) for each program that the sample names, in the unit of ``others_s``."""
        named = self.event.by if isinstance(self.event.by, Mapping) else {}
        return ((name, part(taken) * self.long_s) for name, taken in named.items())

    def within_s(self, spans: Sequence[Period]) -> float:
        """Return how many seconds of the sample lie in ``spans``."""
        return sum(seconds(max(0.0, min(self.end_us, end) - max(self.start_us, start))) for start, end in spans)


def part(value: Any) -> float:
    """Return a recorded part of the processors; 0 if the value is not a number from 0 to 1."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else 0.0


def looks(events: Iterable[MachineEvent], *, origin_us: float) -> Iterator[Look]:
    """Yield the samples with the times that they cover. In early records a sample has no ``over_s``: then it covers the
    time since the sample before, or since ``origin_us``."""
    begun_us = origin_us
    for event in events:
        over_s = event.over_s if isinstance(event.over_s, int | float) and event.over_s > 0 else None
        yield Look(begun_us if over_s is None else max(begun_us, event.t_us - over_s * 1e6), event.t_us, event)
        begun_us = event.t_us


def looks_of(facts: Facts) -> Sequence[Look]:
    """Return the samples of a run. There are none if brokers run in containers or on other machines: there the samples
    count brokers as other programs, or do not cover them."""
    if any(event.driver not in (None, "local") for event in facts.of_kind(ClusterEvent)):
        return ()
    return list(looks(facts.of_kind(MachineEvent), origin_us=facts.origin_us))


def others_cpu(facts: Facts, start_us: float, end_us: float, *, without: Sequence[Period] = ()) -> float:
    """Return the largest part of the processors that other programs can have used in that time; 0 if there are no
    samples. Times in ``without`` do not count."""
    spans = left((start_us, end_us), times(without))
    long_s = sum(seconds(end - start) for start, end in spans)
    taken_s = sum(min(look.within_s(spans), look.others_s) for look in looks_of(facts))
    return taken_s / long_s if long_s else 0.0


def disturbed_s(facts: Facts, start_us: float, end_us: float, *, without: Sequence[Period] = ()) -> float:
    """Return for how many seconds of that time, at most, others can have used ``OTHERS_CPU_MIN``."""
    spans = left((start_us, end_us), times(without))
    return sum(min(look.within_s(spans), look.others_s / OTHERS_CPU_MIN) for look in looks_of(facts))


def could_take(facts: Facts, windows: Iterable[Period]) -> bool:
    """Return whether others can have used ``OTHERS_CPU_MIN`` in each of the windows, which must not overlap. What they
    used in one window, they did not use in another."""
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


def describe_others(facts: Facts, start_us: float, end_us: float, *, without: Sequence[Period] = ()) -> str:
    """Return in words how much other programs used in that time, and which programs; empty if they used less than
    ``OTHERS_CPU_MIN``."""
    others = others_cpu(facts, start_us, end_us, without=without)
    if others < OTHERS_CPU_MIN:
        return ""
    named = _named(facts, start_us, end_us, without)
    return f"other programs took up to {others:.0%} of this machine's processors then{named}"


def describe_busy(
    facts: Facts, start_us: float, end_us: float, *, least_s: float, without: Sequence[Period] = ()
) -> str:
    """Return in words for how long others used ``OTHERS_CPU_MIN`` in that time, by the samples that say so as a whole;
    empty if that was less than ``least_s``."""
    spans = left((start_us, end_us), times(without))
    busy_s = sum(look.within_s(spans) for look in looks_of(facts) if part(look.event.others) >= OTHERS_CPU_MIN)
    if not busy_s or busy_s < least_s:
        return ""
    named = _named(facts, start_us, end_us, without)
    much = f"{OTHERS_CPU_MIN:.0%} or more of this machine's processors"
    return f"other programs took {much} for {busy_s:.3g} s of that{named}"


def _named(facts: Facts, start_us: float, end_us: float, without: Sequence[Period]) -> str:
    """Return the programs that used most in that time, in brackets; empty if none is known."""
    spans = left((start_us, end_us), times(without))
    names = ", ".join(names_of_others([look for look in looks_of(facts) if look.within_s(spans)]))
    return f" ({names})" if names else ""


def names_of_others(seen: Sequence[Look]) -> list[str]:
    """Return the names of the programs that used most of what the others used, the largest first."""
    used_s: defaultdict[str, float] = defaultdict(float)
    for look in seen:
        for name, taken_s in look.by_s():
            used_s[name] += taken_s
    least_s = _NAMED_PART_MIN * sum(look.others_s for look in seen)
    most = sorted((name for name, taken_s in used_s.items() if taken_s >= least_s > 0), key=used_s.__getitem__)
    return most[-_NAMED_MAX:][::-1]
