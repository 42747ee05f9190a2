"""Alarms are raised when, and only when, something raises them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.measured import Curve, curves, measured_us, of_nodes, outside, seen, unseen
from rabbitmq_resilience.invariants.steps import NEVER_US, Step
from rabbitmq_resilience.invariants.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Verdict

#: The kinds of alarm as steps name them, and the metric that shows each.
KINDS = {"memory": "alarm_memory", "disk": "alarm_disk"}


class Alarms(InvariantSpec):
    """Each alarm that a step of the schedule raises is seen on its nodes ``raised_within_s`` after its injection, and
    gone ``cleared_within_s`` after its healing; no other alarm is ever seen. One that has the time, and is still raised
    when its node tells for the last time, leaves it UNKNOWN."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})
    needs_metrics: ClassVar[bool] = True

    raised_within_s: Annotated[float, Field(gt=0)] = 15
    cleared_within_s: Annotated[float, Field(gt=0)] = 15

    def check(self, history: History) -> Finding:
        facts = history.facts
        told_of = {kind: of_nodes(curves(history.metrics, metric)) for kind, metric in KINDS.items()}
        span = measured_us(history, facts)
        if span is None or not all(told_of.values()):
            return Finding(Verdict.UNKNOWN, "the nodes did not tell which alarms are raised")
        wrong = [
            *(text for step in facts.steps for text in self._missed(facts, step, told_of.get(step.alarm, {}), span[1])),
            *(text for kind, found in told_of.items() for text in self._unexpected(facts, kind, found, span)),
        ]
        raised = [step for step in facts.steps if step.injected and step.alarm]
        numbers = {"alarms_expected": sum(len(step.alarmed) for step in raised), "violations": len(wrong)}
        coverage = min((seen(facts, found, span) for found in told_of.values()), key=lambda one: one.judged)
        if wrong:
            return Finding(Verdict.INVALID, wrong[0], numbers, tuple(wrong[:EXAMPLES_MAX]), coverage)
        missing = [text for found in told_of.values() if (text := unseen(facts, found, span))]
        missing += [text for step in raised for text in self._untold(facts, step, told_of.get(step.alarm, {}), span[1])]
        missing += [text for kind, found in told_of.items() for text in _still_raised(facts, kind, found, span)]
        if missing:
            return Finding(Verdict.UNKNOWN, missing[0], numbers, tuple(missing[:EXAMPLES_MAX]), coverage)
        told = "each alarm was raised and cleared in time" if raised else "no alarm was raised, and none was due"
        return Finding(Verdict.VALID, f"{told}, and there was no other" if raised else told, numbers, (), coverage)

    def _missed(self, facts: Facts, step: Step, found: Mapping[str, Curve], end_us: int) -> Iterator[str]:
        for node, curve, start, end in self._raised(step, found, end_us):
            due = curve.within(start, min(end, start + self.raised_within_s * 1e6))
            late = end - start >= self.raised_within_s * 1e6
            if late and len(due) and not due.values.any():
                yield f"{step} was to raise the {step.alarm} alarm on {node}, and it was not seen by {facts.at(end)}"

    def _untold(self, facts: Facts, step: Step, found: Mapping[str, Curve], end_us: int) -> Iterator[str]:
        """The alarms that ended before they were due, unseen: they may have been too short."""
        known = {node for node, *_ in self._raised(step, found, end_us)}
        for node in sorted(step.alarmed - known):
            yield f"{node}, on which {step} raises the {step.alarm} alarm, told nothing"
        for node, curve, start, end in self._raised(step, found, end_us):
            if not curve.within(start, end).values.any():
                yield f"the {step.alarm} alarm that {step} raises was not seen on {node} until {facts.at(end)}"

    def _raised(self, step: Step, found: Mapping[str, Curve], end_us: int) -> Iterator[tuple[str, Curve, float, float]]:
        """The nodes of a step with their curves, and the time in which their alarm is sure to have a cause."""
        start, end = step.sure_us
        for node in sorted(step.alarmed):
            if step.alarm and start < NEVER_US and node in found:
                yield node, found[node], start, min(end, end_us)

    def _unexpected(
        self, facts: Facts, kind: str, found: Mapping[str, Curve], span_us: tuple[int, int]
    ) -> Iterator[str]:
        for node, curve in sorted(found.items()):
            causes = [step for step in facts.steps if step.alarm == kind and node in step.alarmed]
            excused = [(s.possible_us[0], s.possible_us[1] + self.cleared_within_s * 1e6) for s in causes]
            looked = curve.within(*span_us)
            rows = np.flatnonzero((looked.values > 0) & outside(looked.t_us, excused))
            if len(rows):
                t = int(looked.t_us[rows[0]])
                why = "was still raised" if any(s.possible_us[1] < t for s in causes) else "was raised without cause"
                yield f"the {kind} alarm of {node} {why} at {facts.at(t)}, {facts.beside(t, t)}"


def _still_raised(facts: Facts, kind: str, found: Mapping[str, Curve], span_us: tuple[int, int]) -> Iterator[str]:
    for node, curve in sorted(found.items()):
        looks = curve.within(*span_us)
        if len(looks) and looks.values[-1] > 0:
            at = facts.at(int(looks.t_us[-1]))
            yield f"the {kind} alarm of {node} was still raised when it told for the last time, at {at}"
