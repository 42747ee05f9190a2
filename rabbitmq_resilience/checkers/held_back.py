"""Check that brokers do not slow clients down by flow control, or block them, for longer than allowed.

The data are the brokers' own reports: connections in flow and blocked, and queues in flow. A connection is in flow
while the broker lets it wait for credit, as its messages come faster than queues take them. It is blocked while an
alarm of memory or disk is raised. A classic queue in flow is a sign of a message store under pressure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import gaps, lasting_s
from rabbitmq_resilience.checkers.times import Period, left, periods, times
from rabbitmq_resilience.checkers.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    InvariantSpec,
    Number,
    Verdict,
)
from rabbitmq_resilience.history.events import FlowStatesEvent
from rabbitmq_resilience.tools.percentages import percent_text

#: The longest gap between answers that counts as seen. Brokers are asked every 5 s. While a node is cut off they may
#: take 8 s to answer, or not answer at all.
UNSEEN_S_MAX = 20.0

#: A client that publishes on an alarmed broker is blocked, one that has not published yet is blocking.
_STATES = {"flow": ("flow",), "blocked": ("blocked", "blocking")}


Ratio = Annotated[float, Field(ge=0, le=1)]


class HeldBack(InvariantSpec):
    """While publishing lasts, any connection is blocked in at most ``blocked_ratio_max`` of the looks. Any connection
    is in flow in at most ``flow_ratio_max`` of the looks, and any queue in at most ``queues_ratio_max``. A bound that
    is null does not count. Brokers are asked every 5 s; a connection is in flow if it was so at some time in the 5 s
    before.

    Looks do not count while a step of the schedule raises an alarm, and for ``grace_s`` after it. The verdict is
    UNKNOWN if no broker was asked, or none after the last such step, or if for more than 20 s no broker answered or a
    broker that ran did not report its own connections. It is also UNKNOWN if queues have a bound and there are more
    than 1,000 queues: brokers are not asked for that many."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})

    blocked_ratio_max: Ratio | None = 0.0
    flow_ratio_max: Ratio | None = None
    queues_ratio_max: Ratio | None = None
    grace_s: Annotated[float, Field(ge=0)] = 15

    def check(self, history: History) -> Finding:
        facts = history.facts
        span = facts.publishing_us
        if span is None:
            return Finding(Verdict.UNKNOWN, "the events do not state when the load began and ended")
        raised = [step for step in facts.steps if step.injected and step.alarmed]
        alarms = times((step.possible_us[0], step.possible_us[1] + self.grace_s * 1e6) for step in raised)
        stretches = left(span, alarms)
        looks = [e for e in _looks(facts, span) if any(start <= e.t_us < end for start, end in stretches)]
        if not looks:
            text = "no broker was asked for connections at a time when no step blocked them"
            return Finding(Verdict.UNKNOWN, text, coverage=Coverage(0, lasting_s(stretches)))
        shares = _shares(looks)
        numbers: dict[str, Number] = {"looks": len(looks)}
        for name, found in shares.items():
            numbers |= {f"{name}_ratio": found["ratio"], f"{name}_most": found["most"]}
        wrong = [text for name, bound in self._bounds.items() for text in _over(name, shares[name], bound)]
        unseen = list(_unseen(looks, stretches))
        demanded_s = lasting_s(stretches)
        unseen_s = lasting_s(periods(times(gap for gap, _ in unseen)))
        coverage = Coverage(round(demanded_s - unseen_s, 3), demanded_s)
        if wrong:
            return Finding(Verdict.INVALID, "; ".join(wrong), numbers, _examples(facts, looks), coverage)
        raised_until_us = max((step.possible_us[1] for step in raised), default=0.0)
        if doubt := self._doubt(facts, looks, unseen, raised_until_us):
            return Finding(Verdict.UNKNOWN, doubt, numbers, (), coverage)
        text = ", ".join(f"{_NAMES[name]} in {percent_text(found['ratio'])}" for name, found in shares.items())
        return Finding(Verdict.VALID, f"of {len(looks)} looks there was {text}", numbers, (), coverage)

    def _doubt(
        self,
        facts: Facts,
        looks: Sequence[FlowStatesEvent],
        unseen: Sequence[tuple[Period, str]],
        raised_until_us: float,
    ) -> str:
        """Return what was not observed; empty if all was. ``raised_until_us``: when the last step's alarm ended."""
        if self.queues_ratio_max is not None and any(look.flow_queues is None for look in looks):
            return "brokers were not asked for that many queues"
        if looks[-1].t_us < raised_until_us:
            text = "no broker was asked for connections after the last step that blocked them"
            return f"{text}: let the load go on for longer (phases.settled_s)"
        if unseen:
            gap, node = max(unseen, key=lambda found: found[0][1] - found[0][0])
            whose = f"the connections of {node}, which ran," if node else "its connections"
            return f"no broker reported {whose} for {lasting_s([gap]):g} s from {facts.at(gap[0])}"
        return ""

    @property
    def _bounds(self) -> dict[str, float | None]:
        return {"blocked": self.blocked_ratio_max, "flow": self.flow_ratio_max, "queues": self.queues_ratio_max}


#: The things that a look may find, in words.
_NAMES = {"flow": "a connection in flow", "blocked": "a connection blocked", "queues": "a queue in flow"}


def _unseen(looks: Sequence[FlowStatesEvent], stretches: Sequence[Period]) -> Iterator[tuple[Period, str]]:
    """Yield (gap, node) for each gap without a report of the connections of a node that ran, or (gap, "") of all.

    Each broker is asked in turn: one that is cut off reports its own connections.
    """
    for node in ["", *sorted({node for look in looks for node in look.silent})]:
        heard_us = [look.t_us for look in looks if node not in look.silent]
        yield from ((gap, node) for one in stretches for gap in gaps(heard_us, one, longer_than_s=UNSEEN_S_MAX))


def _over(name: str, found: dict[str, float], bound: float | None) -> list[str]:
    if bound is None or found["ratio"] <= bound:
        return []
    return [f"there was {_NAMES[name]} in {percent_text(found['ratio'])} of the looks, allowed are {100 * bound:.3g}%"]


def _examples(facts: Facts, looks: Sequence[FlowStatesEvent]) -> tuple[str, ...]:
    """Return a text for each of the first looks that found anything."""
    found = [(look, {name: counts[0] for name, counts in _counts([look]).items() if counts[0]}) for look in looks]
    texts = [
        f"at {facts.at(look.t_us)}: {', '.join(f'{name} {count}' for name, count in seen.items())}, "
        f"{facts.faults_during(look.t_us, look.t_us)}"
        for look, seen in found
        if seen
    ]
    return tuple(texts[:EXAMPLES_MAX])


def held_back(history: History) -> dict[str, Any] | None:
    """Return the time of publishing as the consequences in ``verdict.json`` hold it; None if no broker was asked.

    ``flow`` and ``blocked`` are for connections, ``queues`` for queues in flow. Each has the ``most`` at once, and the
    ``ratio`` of the ``looks`` that found any. ``connections`` is the most connections at once."""
    span_us = history.facts.publishing_us
    looks = _looks(history.facts, span_us) if span_us else []
    if not looks:
        return None
    most = max(sum(look.connections.values()) for look in looks)
    return {"looks": len(looks), "connections": most, **_shares(looks)}


def _looks(facts: Facts, span_us: Period) -> list[FlowStatesEvent]:
    return [look for look in facts.of_kind(FlowStatesEvent) if span_us[0] <= look.t_us <= span_us[1]]


def _shares(looks: Sequence[FlowStatesEvent]) -> dict[str, dict[str, float]]:
    """Return for each of ``flow``, ``blocked`` and ``queues`` the most at once, and the ratio of looks with any, which
    is not rounded to nothing."""
    return {
        name: {"most": max(counts), "ratio": max(round(sum(map(bool, counts)) / len(counts), 4), 1e-4 * any(counts))}
        for name, counts in _counts(looks).items()
    }


def _counts(looks: Sequence[FlowStatesEvent]) -> dict[str, list[int]]:
    def of_states(states: Sequence[str]) -> list[int]:
        return [sum(look.connections.get(state, 0) for state in states) for look in looks]

    counts = {name: of_states(states) for name, states in _STATES.items()}
    return {**counts, "queues": [len(look.flow_queues or ()) for look in looks]}
