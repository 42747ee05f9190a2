"""How long the queues grow, and how soon they are short again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


class Backlog(InvariantSpec):
    """From the moment when all queues together first hold the most messages, ready and unacknowledged, it takes at most
    ``drained_within_s`` until they hold no more than 5 % of that, or than they did in the steady phase, for good: than
    in two of its looks, as one may have found what was never so again. What is less than the most by 1 %, or by what
    they held in the steady phase and not by more than 5 %, counts as the most.
    Without that bound the numbers are reported, and of queues that did not grow only how much they held. A backlog that
    never had ``peak_min`` messages leaves it UNKNOWN.

    Depths are known to a second, and not at all while a queue is not listed or no node says what it holds: where they
    are not known for the last 10 s and more, or may have been at their highest while they were not known, it is
    UNKNOWN. What a step deletes holds nothing until it is declared again, and a queue that its consumer declares while
    that is not connected.
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
        peak = max(depth for _, depth in depths)
        rest = max(steady, REST_RATIO * peak)
        grown = peak > max(GROWN_RATIO * steady, facts.rate.plain or 0)
        most = peak - max(SAME_RATIO * peak, min(steady, REST_RATIO * peak)) if grown else peak
        peak_us = next(t_us for t_us, depth in depths if depth >= most)
        end_us = facts.phases.get("end", facts.events[-1].t_us)
        untold = gaps([t_us for t_us, _ in depths], (chaos_us, end_us), longer_than_s=UNTOLD_S_MAX)
        drained_us = _drained_us(depths, peak_us, rest) if grown else None
        after_s = None if drained_us is None else seconds(drained_us - peak_us)
        demanded_s = seconds(end_us - chaos_us)
        numbers = {
            "backlog_peak": peak,
            "backlog_peak_at_s": facts.since_start_s(peak_us),
            "backlog_steady": steady,
            "drained_after_s": after_s,
        }
        coverage = Coverage(round(demanded_s - lasting_s(untold), 3), demanded_s)
        told = f"at most {peak} messages waited, at {facts.at(peak_us)}, {facts.beside(peak_us, peak_us)}"
        if grown:
            told += f"; {_drained(after_s, seconds(depths[-1][0] - peak_us), depths[-1][1])}"
        else:
            told += "; that is no more than what is always under way"
        if self.peak_min is not None and peak < self.peak_min:
            return Finding(Verdict.UNKNOWN, f"{told}; it was to be {self.peak_min} or more", numbers, (), coverage)
        last_us = depths[-1][0]
        if last_us < chaos_us or end_us - last_us > UNTOLD_S_MAX * 1e6:
            unknown = f"from {facts.at(last_us)} to the end no node told what all queues held"
            return Finding(Verdict.UNKNOWN, f"{unknown}; as far as was told, {told}", numbers, (), coverage)
        if self.drained_within_s is None:
            return Finding(Verdict.VALID, told, numbers, (), coverage)
        seen_us = last_us if drained_us is None else drained_us
        verdict = self._verdict(peak_us, drained_us, seen_us, untold) if grown else self._of_small(untold)
        told += f"; allowed are {self.drained_within_s:g} s"
        if verdict is Verdict.UNKNOWN and untold:
            told += f", and for {lasting_s(untold):g} s of the time no node told what all queues held"
        return Finding(verdict, told, numbers, (told,) if verdict is Verdict.INVALID else (), coverage)

    def _verdict(self, peak_us: int, drained_us: int | None, last_us: int, untold: Sequence[Period]) -> Verdict:
        """While nobody told the depths they may have been at their highest, and then what is left of it is no measure:
        it began no sooner than that, and ended no later than what was seen."""
        bound_us = (self.drained_within_s or 0) * 1e6
        hidden = [gap for gap in untold if gap[0] < last_us]
        soonest_us = min([peak_us, *(start for start, _ in hidden)])
        if drained_us is not None and drained_us - soonest_us <= bound_us:
            return Verdict.VALID
        late = drained_us is not None or last_us - peak_us >= bound_us
        return Verdict.INVALID if late and not hidden else Verdict.UNKNOWN

    def _of_small(self, untold: Sequence[Period]) -> Verdict:
        """Of queues that did not grow as far as was told."""
        longest_s = max((lasting_s([gap]) for gap in untold), default=0.0)
        return Verdict.VALID if longest_s <= (self.drained_within_s or 0) else Verdict.UNKNOWN


def _held_twice(depths: Sequence[int]) -> int:
    """Return the most that was held in two looks, or in the only one; 0 without any."""
    return sorted(depths)[-2:][0] if depths else 0


def _drained_us(depths: Sequence[tuple[int, int]], peak_us: int, rest: float) -> int | None:
    """When no more than the rest was held, for good; None if it never was."""
    drained_us = None
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


def _drained(after_s: float | None, watched_s: float, left: int) -> str:
    if after_s is None:
        return f"{left} of them still did {watched_s:g} s later"
    return f"they were drained {after_s:g} s later"
