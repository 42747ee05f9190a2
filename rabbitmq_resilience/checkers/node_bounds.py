"""Hold a curve of each node to a bound, except while a step of the schedule breaks it on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.measured import Curve, outside
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, Number, Verdict


@dataclass(frozen=True)
class ExemptNodes:
    """The nodes whose ``alarm`` a step raises: each is exempt from the bound until ``grace_s`` after the healing."""

    facts: Facts
    alarm: str
    grace_s: float

    def periods_us(self, node: str | None = None) -> list[Period]:
        """Return when ``node``, or any node, is exempt, at most until the end of the record."""
        end_us = self.facts.events[-1].t_us
        raised = [s for s in self.facts.steps if s.injected and s.effect.alarm == self.alarm]
        mine = [step.possible_us for step in raised if node is None or node in step.alarmed]
        return [(start, min(end + self.grace_s * 1e6, end_us)) for start, end in mine]

    def left_out(self, found: Mapping[str, Curve]) -> dict[str, Curve]:
        """Return the curves of nodes without the times in which the node is exempt."""
        rows = {node: outside(curve.t_us, self.periods_us(node)) for node, curve in found.items()}
        return {node: Curve(curve.t_us[rows[node]], curve.values[rows[node]]) for node, curve in found.items()}


def within(found: Mapping[str, Curve], span_us: Period) -> dict[str, Curve]:
    """Return the part of each curve in ``span_us``."""
    return {node: curve.within(*span_us) for node, curve in found.items()}


def extremes(
    facts: Facts, found: Mapping[str, Curve], text: Callable[[str, float], str], *, highest: bool
) -> list[tuple[float, str]]:
    """Return (value, text) of the highest or the lowest value of each node, the worst first. The text ends with the
    moment and its faults."""
    worst = []
    for node, curve in found.items():
        if len(curve):
            place = int(curve.values.argmax() if highest else curve.values.argmin())
            t, value = int(curve.t_us[place]), float(curve.values[place])
            worst.append((value, f"{text(node, value)} at {facts.at(t)}, {facts.faults_during(t, t)}"))
    return sorted(worst, reverse=highest)


def breached_at_last(
    facts: Facts, found: Mapping[str, Curve], is_breached: Callable[[float], bool]
) -> Iterator[tuple[str, str]]:
    """Yield each node whose last value breaches the bound, with the moment of that value."""
    for node, curve in found.items():
        if len(curve) and is_breached(curve.values[-1]):
            yield node, facts.at(int(curve.t_us[-1]))


def bound_finding(
    wrong: Sequence[str], missing: str, nearest: str, numbers: Mapping[str, Number], coverage: Coverage, *, side: str
) -> Finding:
    """Return INVALID with the texts of breaches, else UNKNOWN if something is ``missing``, else VALID.

    ``nearest``: what came nearest to the bound. ``side``: "at most", or "at the least".
    """
    if wrong:
        return Finding(Verdict.INVALID, wrong[0], numbers, tuple(wrong[:EXAMPLES_MAX]), coverage)
    if missing:
        return Finding(Verdict.UNKNOWN, f"{missing}; in the observed time, {nearest}", numbers, (), coverage)
    return Finding(Verdict.VALID, f"{side}, {nearest}", numbers, (), coverage)
