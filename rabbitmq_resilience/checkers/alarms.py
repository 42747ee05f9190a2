"""Check that brokers raise an alarm if, and only if, a step of the schedule causes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.lateness import of_this_machine
from rabbitmq_resilience.checkers.measured import Curve, curves, measured_us, of_nodes, outside, seen, unseen
from rabbitmq_resilience.checkers.node_bounds import breached_at_last, within
from rabbitmq_resilience.checkers.observed_faults import NEVER_US, ObservedFault
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Verdict

#: The kinds of alarm as steps name them, and the metric that shows each.
KINDS = {"memory": "alarm_memory", "disk": "alarm_disk"}


class Alarms(InvariantSpec):
    """Each alarm that a step of the schedule raises is seen on its nodes at most ``raised_within_s`` after the
    injection. It is gone at most ``cleared_within_s`` after the healing. No other alarm is ever seen.

    The verdict is UNKNOWN if an alarm is still raised, within its time, in the last sample of its node. It is also
    UNKNOWN if an alarm comes or goes too late, but not twice as late as allowed, and this machine may be the cause: the
    node waited for a processor for long enough to explain the delay, or other programs took much of this machine."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})
    needs_metrics: ClassVar[bool] = True

    raised_within_s: Annotated[float, Field(gt=0)] = 15
    cleared_within_s: Annotated[float, Field(gt=0)] = 15

    def check(self, history: History) -> Finding:
        facts = history.facts
        by_kind = {kind: _known(of_nodes(curves(history.metrics, metric))) for kind, metric in KINDS.items()}
        span = measured_us(history, facts)
        if span is None or not all(by_kind.values()):
            return Finding(Verdict.UNKNOWN, "the nodes did not report which alarms are raised")
        breaches = [
            *(
                each
                for step in facts.steps
                for each in self._missed(facts, step, by_kind.get(step.effect.alarm, {}), span[1])
            ),
            *(each for kind, found in by_kind.items() for each in self._unexpected(facts, kind, found, span)),
        ]
        wrong = [text for text, excuse in breaches if not excuse]
        raised = [step for step in facts.steps if step.injected and step.effect.alarm]
        numbers = {"alarms_expected": sum(len(step.alarmed) for step in raised), "violations": len(wrong)}
        coverage = min((seen(facts, found, span) for found in by_kind.values()), key=lambda one: one.judged)
        if wrong:
            return Finding(Verdict.INVALID, wrong[0], numbers, tuple(wrong[:EXAMPLES_MAX]), coverage)
        missing = [f"{text}; {excuse}" for text, excuse in breaches]
        missing += [text for found in by_kind.values() if (text := unseen(facts, found, span))]
        missing += [
            text for step in raised for text in self._unseen(facts, step, by_kind.get(step.effect.alarm, {}), span[1])
        ]
        missing += [
            f"the {kind} alarm of {node} was still raised in the last sample, at {at}"
            for kind, found in by_kind.items()
            for node, at in sorted(breached_at_last(facts, within(found, span), lambda raised: raised > 0))
        ]
        if missing:
            return Finding(Verdict.UNKNOWN, missing[0], numbers, tuple(missing[:EXAMPLES_MAX]), coverage)
        summary = "each alarm was raised and cleared in time" if raised else "no alarm was raised, and none was due"
        summary += ", and there was no other" if raised else ""
        return Finding(Verdict.VALID, summary, numbers, (), coverage)

    def _missed(
        self, facts: Facts, step: ObservedFault, found: Mapping[str, Curve], end_us: int
    ) -> Iterator[tuple[str, str]]:
        """Yield (text, excuse) for each alarm that was not raised in time; the excuse may be empty."""
        allowed_us = self.raised_within_s * 1e6
        for node, curve, start, end in self._raised(step, found, end_us):
            looks = curve.within(start, end_us)
            on_us = looks.t_us[looks.values > 0]
            came, first_us = len(on_us) > 0, on_us[0] if len(on_us) else end_us + 1
            if end < start + allowed_us or first_us <= start + allowed_us:
                continue
            # the delay counts up to the last sample without the alarm, not up to the next one
            off_us = looks.t_us[(looks.t_us >= start + allowed_us) & (looks.t_us <= end) & (looks.t_us < first_us)]
            excuse = "no sample was taken when the alarm was due"
            if len(off_us):
                allowed_s = self.raised_within_s
                excuse = of_this_machine(facts, [node], start, int(off_us[-1]), allowed_s=allowed_s, came=came)
            seen_at = f"was seen only at {facts.at(int(first_us))}" if came else f"was not seen by {facts.at(end)}"
            yield f"{step} was to raise the {step.effect.alarm} alarm on {node}, and the alarm {seen_at}", excuse

    def _unseen(self, facts: Facts, step: ObservedFault, found: Mapping[str, Curve], end_us: int) -> Iterator[str]:
        """Yield a text for each alarm that no sample shows. The alarm may have ended before it was due."""
        known = {node for node, *_ in self._raised(step, found, end_us)}
        for node in sorted(step.alarmed - known):
            yield f"{node} reported nothing, although {step} raises the {step.effect.alarm} alarm on it"
        for node, curve, start, end in self._raised(step, found, end_us):
            if not (curve.within(start, end).values > 0).any():
                yield f"the {step.effect.alarm} alarm that {step} raises was not seen on {node} until {facts.at(end)}"

    def _raised(
        self, step: ObservedFault, found: Mapping[str, Curve], end_us: int
    ) -> Iterator[tuple[str, Curve, float, float]]:
        """Yield (node, curve, start, end) for each node of a step. The alarm surely has a cause from start to end."""
        start, end = step.sure_us
        for node in sorted(step.alarmed):
            if step.effect.alarm and start < NEVER_US and node in found:
                yield node, found[node], start, min(end, end_us)

    def _unexpected(
        self, facts: Facts, kind: str, found: Mapping[str, Curve], span_us: tuple[int, int]
    ) -> Iterator[tuple[str, str]]:
        """Yield (text, excuse) for one alarm without cause of each node: the first without excuse, or the first."""
        for node, curve in sorted(found.items()):
            causes = [step for step in facts.steps if step.effect.alarm == kind and node in step.alarmed]
            wrong = list(self._without_cause(facts, curve.within(*span_us), node, [s.possible_us for s in causes]))
            for t, why, excuse in sorted(wrong, key=lambda each: bool(each[2]))[:1]:
                yield f"the {kind} alarm of {node} {why} at {facts.at(t)}, {facts.faults_during(t, t)}", excuse

    def _without_cause(
        self, facts: Facts, looked: Curve, node: str, causes_us: Sequence[Period]
    ) -> Iterator[tuple[int, str, str]]:
        """Yield (moment, problem, excuse) for each alarm without cause, at the first such moment."""
        allowed_s = self.cleared_within_s
        raised = looked.values > 0
        wrong = raised & outside(looked.t_us, [(start, end + allowed_s * 1e6) for start, end in causes_us])
        for rows in np.split(np.arange(len(wrong)), np.flatnonzero(np.diff(wrong)) + 1):
            if not len(rows) or not wrong[rows[0]]:
                continue
            begun_us, until_us = (int(looked.t_us[rows[i]]) for i in (0, -1))
            ended_us = [end for _, end in causes_us if end < begun_us]
            if not ended_us or rows[0] == 0 or not raised[rows[0] - 1]:
                yield begun_us, "was raised without cause", ""
                continue
            came = bool(rows[-1] + 1 < len(wrong))
            excuse = of_this_machine(facts, [node], max(ended_us), until_us, allowed_s=allowed_s, came=came)
            yield begun_us, "was still raised", excuse


def _known(found: Mapping[str, Curve]) -> Mapping[str, Curve]:
    """Return the curves without values that are NaN."""
    return {
        node: Curve(curve.t_us[kept := ~np.isnan(curve.values)], curve.values[kept]) for node, curve in found.items()
    }
