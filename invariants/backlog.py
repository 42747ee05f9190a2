"""How long the queues grow, and how soon they are short again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from invariants.facts import Facts
from invariants.verdict import Finding, History, InvariantSpec, Verdict, seconds

#: Drained is what holds no more than this part of what was there at the peak, or than in the steady phase.
REST_RATIO = 0.05
#: What is under way in the steady phase comes and goes; queues have grown when they hold more than so much of it, and
#: more than a second's load.
GROWN_RATIO = 3


class Backlog(InvariantSpec):
    """From the moment when all queues together hold the most messages, ready and unacknowledged, it takes at most
    ``drained_within_s`` until they hold no more than 5 % of that, or than they did in the steady phase, for good.
    Without that bound the numbers are told, and of queues that did not grow only how much they held. A backlog that
    never had ``peak_min`` messages leaves it UNKNOWN. Depths are known to a second, and not at all while no node tells
    them."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "history_whole"})

    drained_within_s: Annotated[float, Field(gt=0)] | None = None
    peak_min: Annotated[int, Field(ge=1)] | None = None

    def check(self, history: History) -> Finding:
        facts = Facts(history.events)
        steady_us, chaos_us = facts.phases.get("steady"), facts.phases.get("chaos")
        depths = list(_depths(facts))
        if steady_us is None or chaos_us is None or not depths:
            return Finding(Verdict.UNKNOWN, "the brokers did not tell what the queues held")
        steady = max((depth for t_us, depth in depths if steady_us <= t_us < chaos_us), default=0)
        peak, peak_us = max((depth, t_us) for t_us, depth in depths)
        rest = max(steady, REST_RATIO * peak)
        grown = peak > max(GROWN_RATIO * steady, facts.rate.plain or 0)
        drained_us = None
        for t_us, depth in ((t, d) for t, d in depths if t >= peak_us):
            drained_us = None if depth > rest else t_us if drained_us is None else drained_us
        watched_s = seconds(depths[-1][0] - peak_us)
        after_s = None if drained_us is None or not grown else seconds(drained_us - peak_us)
        numbers = {"backlog_peak": peak, "backlog_steady": steady, "drained_after_s": after_s}
        told = f"at most {peak} messages waited, at {facts.at(peak_us)}, {facts.beside(peak_us, peak_us)}"
        if self.peak_min is not None and peak < self.peak_min:
            return Finding(Verdict.UNKNOWN, f"{told}; it was to be {self.peak_min} or more", numbers)
        if not grown:
            return Finding(Verdict.VALID, f"{told}; that is no more than what is always under way", numbers)
        told += f"; {_drained(after_s, watched_s, depths[-1][1])}"
        if self.drained_within_s is None or (after_s is not None and after_s <= self.drained_within_s):
            return Finding(Verdict.VALID, told, numbers)
        too_late = after_s is not None or watched_s >= self.drained_within_s
        told += f"; allowed are {self.drained_within_s:g} s"
        return Finding(Verdict.INVALID if too_late else Verdict.UNKNOWN, told, numbers, (told,) if too_late else ())


def _depths(facts: Facts) -> Iterator[tuple[int, int]]:
    """All that the queues held, at each moment at which each told what it holds."""
    for event in facts.of_kind("sample"):
        held = [row.get(kind) for row in event["queues"].values() for kind in ("ready", "unacked")]
        if held and None not in held:
            yield event["t_us"], sum(held)


def _drained(after_s: float | None, watched_s: float, left: int) -> str:
    if after_s is None:
        return f"{left} of them still did {watched_s:g} s later"
    return f"they were drained {after_s:g} s later"
