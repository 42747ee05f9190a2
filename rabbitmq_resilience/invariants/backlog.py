"""How long the queues grow, and how soon they are short again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.gaps import gaps, lasting_s
from rabbitmq_resilience.invariants.listing import lists_all
from rabbitmq_resilience.invariants.times import Period
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.invariants.verdict import Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.record.events import SampleEvent

#: Drained is what holds no more than this part of what was there at the peak, or than in the steady phase.
REST_RATIO = 0.05
#: What is less than the most by no more than this part of it is the most too: a backlog that only waits comes and goes.
SAME_RATIO = 0.01
#: What is under way in the steady phase comes and goes; queues have grown when they hold more than so much of it, and
#: more than a second's load.
GROWN_RATIO = 3
#: Depths are asked for every second; while brokers are busy with themselves they answer late.
UNTOLD_S_MAX = 10.0
#: What lies between two looks that are no further apart than this is known.
LOOKED_EVERY_S = 2.0
#: More messages than queues ever hold.
ANY_NUMBER = 1e15


class Backlog(InvariantSpec):
    """From the moment when all queues together first hold the most messages, ready and unacknowledged, it takes at most
    ``drained_within_s`` until they hold no more than 5 % of that, or than they did in the steady phase, for good: than
    in two of its looks, as one may have found what was never so again. What is less than the most by 1 %, or by what
    they held in the steady phase and not by more than 5 %, counts as the most.
    Queues have grown if they ever hold more than three times what they did in the steady phase, and more than a second
    of the load; of others it is reported only how much they held. Without that bound the numbers are reported. A
    backlog that never had ``peak_min`` messages leaves it UNKNOWN.

    Depths are known to a second, and not at all while a queue is not listed or no node says what it holds. Where they
    are not known for the last 10 s and more, it is UNKNOWN. So it is where the verdict depends on what is not known:
    the queues may have been empty for all that time, and, if it is longer than 10 s, at their highest, as far as the
    load can have filled them. What a step deletes holds nothing until it is declared again, and a queue that its
    consumer declares while that is not connected.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})

    drained_within_s: Annotated[float, Field(gt=0)] | None = None
    peak_min: Annotated[int, Field(ge=1)] | None = None

    @property
    def least_phases(self) -> Mapping[str, float]:
        """What is given up before it is late cannot be told."""
        return {} if self.drained_within_s is None else {"drain_s": self.drained_within_s}

    def check(self, history: History) -> Finding:
        facts = history.facts
        steady_us, chaos_us = facts.phases.get("steady"), facts.phases.get("chaos")
        depths = list(depths_of(facts))
        if steady_us is None or chaos_us is None or not depths:
            return Finding(Verdict.UNKNOWN, "the brokers did not tell what the queues held")
        steady = _held_twice([depth for t_us, depth in depths if steady_us <= t_us < chaos_us])
        seen = _Course.of(depths, steady, facts.rate.plain or 0)
        end_us = facts.phases.get("end", facts.events[-1].t_us)
        untold = gaps([t_us for t_us, _ in depths], (chaos_us, end_us), longer_than_s=UNTOLD_S_MAX)
        demanded_s = seconds(end_us - chaos_us)
        numbers = {
            "backlog_peak": seen.peak,
            "backlog_peak_at_s": facts.since_start_s(seen.peak_us),
            "backlog_steady": steady,
            "drained_after_s": seen.drained_after_s,
        }
        coverage = Coverage(round(demanded_s - lasting_s(untold), 3), demanded_s)
        told = f"at most {seen.peak} messages waited, at {facts.at(seen.peak_us)}"
        told += f", {facts.beside(seen.peak_us, seen.peak_us)}; {seen}"
        if self.peak_min is not None and seen.peak < self.peak_min:
            return Finding(Verdict.UNKNOWN, f"{told}; it was to be {self.peak_min} or more", numbers, (), coverage)
        last_us = depths[-1][0]
        if last_us < chaos_us or end_us - last_us > UNTOLD_S_MAX * 1e6:
            unknown = f"from {facts.at(last_us)} to the end no node told what all queues held"
            return Finding(Verdict.UNKNOWN, f"{unknown}; as far as was told, {told}", numbers, (), coverage)
        if self.drained_within_s is None:
            return Finding(Verdict.VALID, told, numbers, (), coverage)
        told += f"; allowed are {self.drained_within_s:g} s"
        verdict = seen.verdict(self.drained_within_s)
        for hidden in _hidden(depths, seen, facts.rate.plain):
            if hidden.verdict(self.drained_within_s) is not verdict:
                since_us, until_us = hidden.unknown_us
                told += f", and from {facts.at(since_us)} to {facts.at(until_us)} it is not known what all queues held"
                return Finding(Verdict.UNKNOWN, told, numbers, (), coverage)
        return Finding(verdict, told, numbers, (told,) if verdict is Verdict.INVALID else (), coverage)


@dataclass(frozen=True)
class _Course:
    """How a backlog came and went. ``drained_us``: when it was short again for good; None if it was not until
    ``last_us``, when ``left`` messages waited. ``unknown_us``: the time for which this is only what may have been."""

    steady: int
    burst: float
    peak: float
    peak_us: float
    drained_us: float | None
    last_us: float
    left: float
    unknown_us: Period = (0.0, 0.0)

    @classmethod
    def of(
        cls, depths: Sequence[tuple[float, float]], steady: int, burst: float, unknown_us: Period = (0.0, 0.0)
    ) -> _Course:
        """Return the course of these depths; ``burst`` is a second's load."""
        peak = max(depth for _, depth in depths)
        has_grown = peak > _usual(steady, burst)
        most = peak - max(SAME_RATIO * peak, min(steady, REST_RATIO * peak)) if has_grown else peak
        peak_us = next(t_us for t_us, depth in depths if depth >= most)
        drained_us = _drained_us(depths, peak_us, max(steady, REST_RATIO * peak))
        return cls(steady, burst, peak, peak_us, drained_us, *depths[-1], unknown_us)

    @property
    def has_grown(self) -> bool:
        return self.peak > _usual(self.steady, self.burst)

    @property
    def drained_after_s(self) -> float | None:
        return None if self.drained_us is None or not self.has_grown else seconds(self.drained_us - self.peak_us)

    def verdict(self, within_s: float) -> Verdict:
        """Return whether it was short again in time; UNKNOWN if the record ends before that was due."""
        if not self.has_grown:
            return Verdict.VALID
        if self.drained_us is None:
            return Verdict.INVALID if seconds(self.last_us - self.peak_us) >= within_s else Verdict.UNKNOWN
        return Verdict.VALID if seconds(self.drained_us - self.peak_us) <= within_s else Verdict.INVALID

    def __str__(self) -> str:
        if not self.has_grown:
            return "that is no more than what is always under way"
        if self.drained_us is None:
            return f"{self.left:g} of them still did {seconds(self.last_us - self.peak_us):g} s later"
        return f"they were drained {seconds(self.drained_us - self.peak_us):g} s later"


def _usual(steady: int, burst: float) -> float:
    """Return up to how many messages wait in queues that have not grown."""
    return max(GROWN_RATIO * steady, burst)


def _hidden(depths: Sequence[tuple[int, int]], seen: _Course, rate: float | None) -> Iterator[_Course]:
    """Yield what else the courses of depths may have been where these were not known, each at its extreme.

    The queues may have been empty; and, in a longer time, at their highest, as soon as the load (messages/s; None: any)
    can have filled them, or as late and as high as can be.
    """
    emptied: list[tuple[float, float]] = []
    high = max(seen.peak, _usual(seen.steady, seen.burst))
    for (start_us, depth), (end_us, _) in itertools.pairwise(depths):
        emptied.append((start_us, depth))
        if end_us - start_us <= LOOKED_EVERY_S * 1e6:
            continue
        emptied.append((start_us + 1e6, 0))
        if end_us - start_us <= UNTOLD_S_MAX * 1e6:
            continue
        soonest_us = start_us + (1e6 * (high - depth) / rate if rate else 0)
        latest = depth + rate * seconds(end_us - start_us) if rate else ANY_NUMBER
        for t_us, held in ((soonest_us + 1, high + 1e-6), (end_us - 1, latest)):
            if t_us < end_us and held > high:
                more = sorted([*depths, (t_us, held), (end_us - 1, held)])
                yield _Course.of(more, seen.steady, seen.burst, (start_us, end_us))
    yield _Course.of([*emptied, depths[-1]], seen.steady, seen.burst, _longest(depths))


def _longest(depths: Sequence[tuple[int, int]]) -> Period:
    """Return the longest time between two looks."""
    return max(itertools.pairwise(t_us for t_us, _ in depths), key=lambda two: two[1] - two[0], default=(0.0, 0.0))


def _held_twice(depths: Sequence[int]) -> int:
    """Return the most that was held in two looks, or in the only one; 0 without any."""
    return sorted(depths)[-2:][0] if depths else 0


def _drained_us(depths: Sequence[tuple[float, float]], peak_us: float, rest: float) -> float | None:
    """Return when no more than ``rest`` was held, for good; None if it never was."""
    drained_us: float | None = None
    for t_us, depth in ((t, d) for t, d in depths if t >= peak_us):
        drained_us = None if depth > rest else t_us if drained_us is None else drained_us
    return drained_us


def depths_of(facts: Facts) -> Iterator[tuple[int, int]]:
    """Yield all that the queues held, at each moment at which it is known of each that must be there."""
    for event in facts.of_kind(SampleEvent):
        if not lists_all(facts, event):
            continue
        held = [row.get(kind) for row in event.queues.values() for kind in ("ready", "unacked")]
        known = [count for count in held if count is not None]
        if held and len(known) == len(held):
            yield event.t_us, sum(known)
