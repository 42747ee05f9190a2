"""Check how long the queues grow, and how soon they are short again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import gaps, lasting_s
from rabbitmq_resilience.checkers.listing import lists_all
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.events import SampleEvent
from rabbitmq_resilience.history.variation import Variation

#: Queues are drained when they hold no more than this part of the peak, or no more than in the steady phase.
REST_RATIO = 0.05
#: A depth within this part of the peak counts as the peak: a backlog that only waits varies a little.
SAME_RATIO = 0.01
#: Depths vary in the steady phase. Queues have grown when they hold more than this many times the steady depth, and
#: more than a second's load.
GROWN_RATIO = 3
#: The longest gap in the depths that counts as known. They are asked for every second; busy brokers answer late.
UNKNOWN_S_MAX = 10.0
#: Between two looks that are no further apart than this the depth counts as known.
LOOKED_EVERY_S = 2.0
#: A number of messages that queues never hold.
ANY_NUMBER = 1e15


class Backlog(InvariantSpec):
    """The queues are drained at most ``drained_within_s`` after the peak. The peak is the moment when all queues
    together first hold the most messages, ready and unacknowledged. Drained means that they hold no more, for good,
    than 5 % of the peak or than in the steady phase: than in two looks of that phase, as a single look may be an
    outlier. A depth counts as the peak if it is less by at most 1 %, or by at most the steady depth and 5 %.

    Queues have grown if they ever hold more than three times the steady depth, and more than a second of the load at
    the highest target of the last 2 s. If they have not, only their depth is reported. Without the bound the numbers
    are only reported. The verdict is UNKNOWN if the backlog never had ``peak_min`` messages.

    Depths are known to a second. They are unknown while a queue is not listed, or while no node reports its depth. The
    verdict is UNKNOWN if they are unknown for the last 10 s or longer. It is also UNKNOWN if it depends on depths in a
    gap: there the queues may have been empty, and, if the gap is longer than 10 s, at their highest, as far as the load
    can have filled them. A queue that a step deleted holds nothing until it is declared again. A queue that its
    consumer declares holds nothing while that consumer is not connected.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})

    drained_within_s: Annotated[float, Field(gt=0)] | None = None
    peak_min: Annotated[int, Field(ge=1)] | None = None

    @property
    def least_phases(self) -> Mapping[str, float]:
        """Return the least length of the drain: a drain that is given up earlier cannot be judged as late."""
        return {} if self.drained_within_s is None else {"drain_s": self.drained_within_s}

    def check(self, history: History) -> Finding:
        facts = history.facts
        steady_us, chaos_us = facts.phases.get("steady"), facts.phases.get("chaos")
        depths = list(depths_of(facts))
        if steady_us is None or chaos_us is None or not depths:
            return Finding(Verdict.UNKNOWN, "the brokers did not report what the queues held")
        looked = [depth for t_us, depth in depths if steady_us <= t_us < chaos_us]
        steady = _held_twice(looked)
        seen = _Course.of(depths, steady, facts.rate)
        end_us = facts.phases.get("end", facts.events[-1].t_us)
        unknown = gaps([t_us for t_us, _ in depths], (chaos_us, end_us), longer_than_s=UNKNOWN_S_MAX)
        demanded_s = seconds(end_us - chaos_us)
        numbers = {
            "backlog_peak": seen.peak,
            "backlog_peak_at_s": facts.since_start_s(seen.peak_us),
            "backlog_steady": steady,
            "drained_after_s": seen.drained_after_s,
        }
        coverage = Coverage(round(demanded_s - lasting_s(unknown), 3), demanded_s)
        summary = f"at most {seen.peak} messages waited, at {facts.at(seen.peak_us)}"
        summary += f", {facts.faults_during(seen.peak_us, seen.peak_us)}; {seen}"
        if self.peak_min is not None and seen.peak < self.peak_min:
            return Finding(Verdict.UNKNOWN, f"{summary}; demanded are {self.peak_min} or more", numbers, (), coverage)
        last_us = depths[-1][0]
        if last_us < chaos_us or end_us - last_us > UNKNOWN_S_MAX * 1e6:
            unseen = f"from {facts.at(last_us)} to the end no node reported what all queues held"
            return Finding(Verdict.UNKNOWN, f"{unseen}; in the observed time, {summary}", numbers, (), coverage)
        if self.drained_within_s is None:
            return Finding(Verdict.VALID, summary, numbers, (), coverage)
        summary += f"; allowed are {self.drained_within_s:g} s"
        verdict, doubt = seen.verdict(self.drained_within_s), ""
        if verdict is Verdict.INVALID and not looked:
            doubt = "; in the steady phase no node reported what all queues held, so that may be as much as always"
        for hidden in _hidden(depths, seen):
            if not doubt and hidden.verdict(self.drained_within_s) is not verdict:
                since_us, until_us = hidden.unknown_us
                gap = f"from {facts.at(since_us)} to {facts.at(until_us)}"
                doubt = f", and {gap} it is not known what all queues held"
        if doubt:
            return Finding(Verdict.UNKNOWN, summary + doubt, numbers, (), coverage)
        return Finding(verdict, summary, numbers, (summary,) if verdict is Verdict.INVALID else (), coverage)


@dataclass(frozen=True)
class _Course:
    """How a backlog came and went. ``drained_us``: when it was short again for good; None if it was not by ``last_us``,
    when ``left`` messages waited. ``unknown_us``: the gap for which this course is only a possibility."""

    steady: int
    rate: Variation
    peak: float
    peak_us: float
    drained_us: float | None
    last_us: float
    left: float
    has_grown: bool
    unknown_us: Period = (0.0, 0.0)

    @classmethod
    def of(
        cls, depths: Sequence[tuple[float, float]], steady: int, rate: Variation, unknown_us: Period = (0.0, 0.0)
    ) -> _Course:
        """Return the course of these depths under a load with that target rate."""
        peak = max(depth for _, depth in depths)
        has_grown = any(depth > _usual(steady, rate, t_us) for t_us, depth in depths)
        most = peak - max(SAME_RATIO * peak, min(steady, REST_RATIO * peak)) if has_grown else peak
        peak_us = next(t_us for t_us, depth in depths if depth >= most)
        drained_us = _drained_us(depths, peak_us, max(steady, REST_RATIO * peak))
        return cls(steady, rate, peak, peak_us, drained_us, *depths[-1], has_grown, unknown_us)

    @property
    def drained_after_s(self) -> float | None:
        return None if self.drained_us is None or not self.has_grown else seconds(self.drained_us - self.peak_us)

    def verdict(self, within_s: float) -> Verdict:
        """Return whether the backlog was short again in time; UNKNOWN if the record ends before that was due."""
        if not self.has_grown:
            return Verdict.VALID
        if self.drained_us is None:
            return Verdict.INVALID if seconds(self.last_us - self.peak_us) >= within_s else Verdict.UNKNOWN
        return Verdict.VALID if seconds(self.drained_us - self.peak_us) <= within_s else Verdict.INVALID

    def __str__(self) -> str:
        if not self.has_grown:
            return "that is no more than is always under way"
        if self.drained_us is None:
            return f"{self.left:g} of them still did {seconds(self.last_us - self.peak_us):g} s later"
        return f"they were drained {seconds(self.drained_us - self.peak_us):g} s later"


def _usual(steady: int, rate: Variation, t_us: float) -> float:
    """Return the most messages that wait at that moment in queues that have not grown."""
    targets = (per_s for _, _, per_s in rate.pieces(t_us - LOOKED_EVERY_S * 1e6, t_us + 1))
    return max(GROWN_RATIO * steady, *(per_s or 0 for per_s in targets))


def _sent(rate: Variation, start_us: float, end_us: float) -> float:
    """Return how many messages the load sends in that time at most."""
    pieces = rate.pieces(start_us, end_us)
    return sum(ANY_NUMBER if per_s is None else per_s * seconds(end - start) for start, end, per_s in pieces)


def _sent_by_us(rate: Variation, count: float, start_us: float, end_us: float) -> float:
    """Return when the load can have sent ``count`` messages in that time; NEVER_US if it cannot."""
    for start, end, per_s in rate.pieces(start_us, end_us):
        if per_s is None or per_s * seconds(end - start) >= count:
            return start + (1e6 * count / per_s if per_s else 0)
        count -= per_s * seconds(end - start)
    return NEVER_US


def _hidden(depths: Sequence[tuple[int, int]], seen: _Course) -> Iterator[_Course]:
    """Yield the extreme courses that the depths may have had in the gaps between looks.

    In a gap the queues may have been empty. In a longer gap they may also have been at their highest: as soon as the
    load can have filled them, or as late and as high as possible.
    """
    emptied: list[tuple[float, float]] = []
    for (start_us, depth), (end_us, _) in itertools.pairwise(depths):
        emptied.append((start_us, depth))
        if end_us - start_us <= LOOKED_EVERY_S * 1e6:
            continue
        emptied.append((start_us + 1e6, 0))
        if end_us - start_us <= UNKNOWN_S_MAX * 1e6:
            continue
        high = max(seen.peak, *(_usual(seen.steady, seen.rate, t_us) for t_us in (start_us, end_us)))
        soonest_us = _sent_by_us(seen.rate, high - depth, start_us, end_us)
        latest = depth + _sent(seen.rate, start_us, end_us)
        for t_us, held in ((soonest_us + 1, high + 1e-6), (end_us - 1, latest)):
            if t_us < end_us and held > high:
                more = sorted([*depths, (t_us, held), (end_us - 1, held)])
                yield _Course.of(more, seen.steady, seen.rate, (start_us, end_us))
    yield _Course.of([*emptied, depths[-1]], seen.steady, seen.rate, _longest(depths))


def _longest(depths: Sequence[tuple[int, int]]) -> Period:
    """Return the longest time between two looks."""
    return max(itertools.pairwise(t_us for t_us, _ in depths), key=lambda two: two[1] - two[0], default=(0.0, 0.0))


def _held_twice(depths: Sequence[int]) -> int:
    """Return the highest depth that two looks reached, or the only look; 0 without looks."""
    return sorted(depths)[-2:][0] if depths else 0


def _drained_us(depths: Sequence[tuple[float, float]], peak_us: float, rest: float) -> float | None:
    """Return when the queues held no more than ``rest`` for good; None if they never did."""
    drained_us: float | None = None
    for t_us, depth in ((t, d) for t, d in depths if t >= peak_us):
        drained_us = None if depth > rest else t_us if drained_us is None else drained_us
    return drained_us


def depths_of(facts: Facts) -> Iterator[tuple[int, int]]:
    """Yield (moment, messages in all queues of the load) for each sample that lists the depth of every queue that must
    exist."""
    names = {queue.name for queue in facts.queues}
    for event in facts.of_kind(SampleEvent):
        if not lists_all(facts, event):
            continue
        rows = [row for name, row in event.queues.items() if name in names]
        held = [row.get(kind) for row in rows for kind in ("ready", "unacked")]
        known = [count for count in held if count is not None]
        if held and len(known) == len(held):
            yield event.t_us, sum(known)
