"""Check that the user's own alerts fire if they should, and that no other alerts fire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import lasting_s
from rabbitmq_resilience.checkers.lateness import of_this_machine
from rabbitmq_resilience.checkers.measured import measured_us
from rabbitmq_resilience.checkers.observed_faults import NEVER_US, ObservedFault
from rabbitmq_resilience.checkers.times import Period, Times, periods, times, union
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.recorded_alerts import Active, RuleGroup
from rabbitmq_resilience.history.recorded_alerts import RecordedAlerts as Record
from rabbitmq_resilience.model.base import Spec


class FiringAlert(Spec):
    """An alert that must fire, with at least these ``labels``, at most ``within_s`` after a step took effect.
    ``after_step`` is the number of that step; the first step is 0."""

    alert: Annotated[str, Field(min_length=1)]
    labels: Mapping[str, str] = Field(default_factory=dict)
    within_s: Annotated[float, Field(gt=0, le=86_400)]
    after_step: Annotated[int, Field(ge=0)]

    def names(self, active: Active) -> bool:
        """Return whether ``active`` is this alert, with these labels."""
        return active.alert == self.alert and self.labels.items() <= active.labels.items()

    def __str__(self) -> str:
        labels = ", ".join(f"{name} {value}" for name, value in sorted(self.labels.items()))
        return f"{self.alert} ({labels})" if labels else self.alert


class Alerts(InvariantSpec):
    """Each alert of ``fires`` fires in time; the scenario's ``rules`` define the alerts. With ``no_others`` no other
    alert fires from the steady phase to the end. An alert of ``fires`` may begin to fire, with its labels, from the
    beginning of its step until ``within_s`` after the healing. Alerts in ``ignored`` may fire at any time.

    An alert is pending before it fires, for as long as its rule says (``for``); only firing counts. The verdict is
    UNKNOWN if an alert fired before its step began and had no other cause; with ``no_others`` that is INVALID, as an
    alert without a cause. It is UNKNOWN if Prometheus did not evaluate the rules for some time, and this gap may hide
    what is demanded. It is also UNKNOWN if an alert fires too late, but not twice as late as allowed, and this machine
    may be the cause: a broker waited for a processor for long enough to explain the delay, or other programs took much
    of this machine."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})
    needs_metrics: ClassVar[bool] = True

    fires: tuple[FiringAlert, ...] = ()
    no_others: bool = True
    ignored: tuple[str, ...] = ()

    def check(self, history: History) -> Finding:
        facts, record = history.facts, history.alerts()
        span = measured_us(history, facts)
        if record is None or span is None:
            return Finding(Verdict.UNKNOWN, "the run has no record of active alerts")
        steps = {step.number: step for step in facts.steps}
        firing = list(_whole(record))
        late: list[str] = []
        unclear: list[str] = []
        taken_s: list[float] = []
        for demand in self.fires:
            step = steps.get(demand.after_step)
            if step is None or step.sure_us[0] == NEVER_US:
                unclear.append(f"step {demand.after_step}, after which {demand} was to fire, did not take effect")
                continue
            fired = _fired(demand, step, firing)
            since_us = [one.start_us for one in fired if self._has_cause(one, steps)]
            if since_us:
                taken_s.append(seconds(max(0, min(since_us) - step.sure_us[0])))
            elif fired:
                unclear.append(f"{fired[0]} already fired from {facts.at(fired[0].start_us)} on, before {step} began")
            elif doubt := _doubt(facts, record, demand, step, span[1]):
                unclear.append(doubt)
            else:
                text, excuse = _late(facts, record, demand, step, firing)
                (unclear if excuse else late).append(f"{text}; {excuse}" if excuse else text)
        without_cause = list(self._others(facts, firing, record, steps, span)) if self.no_others else []
        others = [text for text, excuse in without_cause if not excuse]
        unclear += [f"{text}; {excuse}" for text, excuse in without_cause if excuse]
        wrong = [*late, *others]
        numbers = {
            "alerts_demanded": len(self.fires),
            "alerts_fired": len(taken_s),
            "slowest_s": max(taken_s, default=None),
            "others": len(others),
        }
        looked_at, unseen = self._looked_at(record, steps, span)
        coverage = Coverage(round(lasting_s(looked_at) - lasting_s(unseen), 3), lasting_s(looked_at))
        if wrong:
            return Finding(Verdict.INVALID, wrong[0], numbers, tuple(wrong[:EXAMPLES_MAX]), coverage)
        if unseen and self.no_others:
            start, end = max(unseen, key=lambda gap: gap[1] - gap[0])
            gap = f"the rules were not evaluated for {seconds(end - start):g} s from {facts.at(start)} on"
            unclear.append(f"{gap}, and other alerts may have fired")
        if unclear:
            return Finding(Verdict.UNKNOWN, unclear[0], numbers, tuple(unclear[:EXAMPLES_MAX]), coverage)
        summary = self._summary(taken_s, any(_overlaps(one, span) for one in firing))
        return Finding(Verdict.VALID, summary, numbers, (), coverage)

    def _summary(self, taken_s: Sequence[float], fired: bool) -> str:
        """Return in words what fired in time, after how long, and that nothing else did. ``fired``: whether any alert
        did, also those that may at any time."""
        count = f"{len(taken_s)} alert{'s' if len(taken_s) > 1 else ''}"
        in_time = f"{count} fired in time, the slowest {max(taken_s):g} s after its step" if taken_s else ""
        if not self.no_others:
            return in_time or "no alert was demanded"
        return ", and ".join(filter(None, [in_time, "no other alert fired" if fired else "no alert fired"]))

    def _has_cause(self, active: Active, steps: Mapping[int, ObservedFault]) -> bool:
        """Return whether the alert fired after the beginning of a step that demands it."""
        mine = (demand for demand in self.fires if demand.names(active))
        return any(_began_before(steps.get(demand.after_step), active) for demand in mine)

    def _others(
        self,
        facts: Facts,
        firing: Iterable[Active],
        record: Record,
        steps: Mapping[int, ObservedFault],
        span_us: Period,
    ) -> Iterator[tuple[str, str]]:
        """Yield (text, excuse) for each alert that fired though no step demands it at that time.

        The excuse says why this machine may be the cause; it is empty if this machine is not.
        """
        for active in firing:
            if active.alert in self.ignored or not _overlaps(active, span_us):
                continue
            earliest_us = _earliest_us(active, record)
            healed_us = [
                (steps[demand.after_step].possible_us[1], demand)
                for demand in self.fires
                if demand.names(active) and _began_before(steps.get(demand.after_step), active)
            ]
            if not any(earliest_us <= end_us + demand.within_s * 1e6 for end_us, demand in healed_us):
                excuses = (_excuse(facts, demand, end_us, earliest_us) for end_us, demand in healed_us)
                fault = facts.faults_during(active.start_us, active.start_us)
                yield f"{active} fired at {facts.at(active.start_us)}, {fault}", next(filter(None, excuses), "")

    def _looked_at(
        self, record: Record, steps: Mapping[int, ObservedFault], span_us: Period
    ) -> tuple[list[Period], list[Period]]:
        """Return the periods that are judged, and their parts without evaluations.

        A group that has only ignored alerts does not count.
        """
        if self.no_others:
            judged = times([span_us])
        else:
            taken = [(demand, steps[demand.after_step]) for demand in self.fires if demand.after_step in steps]
            windows = [_window_us(demand, step) for demand, step in taken if step.sure_us[0] < NEVER_US]
            judged = times((start, min(end, span_us[1])) for start, end in windows)
        heard = [group for group in record.groups if {*group.alerts} - {*self.ignored}]
        unseen = union(_unseen(group, period) for group in heard for period in periods(judged))
        return list(periods(judged)), list(periods(unseen))


def _began_before(step: ObservedFault | None, active: Active) -> bool:
    return step is not None and step.injected and step.possible_us[0] <= active.start_us


def _overlaps(active: Active, span_us: Period) -> bool:
    return active.end_us >= span_us[0] and active.start_us <= span_us[1]


def _window_us(demand: FiringAlert, step: ObservedFault) -> Period:
    return step.sure_us[0], step.sure_us[0] + demand.within_s * 1e6


def _fired(demand: FiringAlert, step: ObservedFault, firing: Iterable[Active]) -> list[Active]:
    """Return the demanded alerts that fired in time, in the order in which they began."""
    first_us, last_us = step.possible_us[0], _window_us(demand, step)[1]
    return [one for one in firing if demand.names(one) and one.start_us <= last_us and one.end_us > first_us]


def _late(
    facts: Facts, record: Record, demand: FiringAlert, step: ObservedFault, firing: Iterable[Active]
) -> tuple[str, str]:
    """Return (text, excuse) for an alert that was not seen to fire in time.

    If its rule was not evaluated just before the alert was seen, the alert may have fired since the last evaluation.
    """
    begun_us, due_us = _window_us(demand, step)
    later = [(_earliest_us(one, record), one.start_us) for one in firing if demand.names(one) and one.start_us > due_us]
    at = facts.at(begun_us)
    demanded = f"{demand} was to fire within {demand.within_s:g} s of {step} at {at}, and"
    if not later:
        return f"{demanded} it never fired", ""
    earliest_us, seen_us = min(later)
    if earliest_us <= due_us:
        return f"{demanded} it was seen {seconds(seen_us - begun_us):g} s after it", "its rule was not evaluated before"
    only = "fired only" if earliest_us == seen_us else "was seen to fire only"
    took_s = seconds(seen_us - begun_us)
    return f"{demanded} it {only} {took_s:g} s after it", _excuse(facts, demand, begun_us, earliest_us)


def _excuse(facts: Facts, demand: FiringAlert, begun_us: float, came_us: float) -> str:
    """Return why this machine may have made the alert late; empty if this machine is not the cause."""
    nodes = facts.cluster.nodes if facts.cluster else ()
    return of_this_machine(facts, nodes, begun_us, came_us, allowed_s=demand.within_s, came=True)


def _doubt(facts: Facts, record: Record, demand: FiringAlert, step: ObservedFault, end_us: float) -> str:
    """Return why the alert may have fired in time, unseen; empty if the record shows that it did not."""
    start, last = _window_us(demand, step)
    if last > end_us:
        return f"{demand} was to fire by {facts.at(last)}, and the record ends at {facts.at(end_us)}"
    of_it = [group for group in record.groups if demand.alert in group.alerts]
    unseen = list(periods(union(_unseen(group, (start, last)) for group in of_it)))
    if not of_it:
        return f"{demand} was not seen to fire, and no rule that was evaluated defines it"
    if unseen:
        gap_s = lasting_s(unseen)
        return f"{demand} was not seen to fire, and its rule was not evaluated for {gap_s:g} s after {step}"
    return ""


def _unseen(group: RuleGroup, within_us: Period) -> Times:
    """Return the times without evaluations of a group that has alerts.

    Gaps between evaluations that are within the usual delay do not count.
    """
    if not group.alerts:
        return times(())
    start, end = within_us
    met = [(max(a, start), min(b, end)) for a, b in group.evaluated_us if b >= start and a <= end]
    edges = [start, *(edge for both in met for edge in both), end]
    apart_us = group.apart_us
    return times((a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a > apart_us)


def _whole(record: Record) -> Iterator[Active]:
    """Yield the alerts that fired. The parts of one alert before and after a time without evaluations are joined."""
    by_alert: dict[tuple[str, tuple[tuple[str, str], ...]], list[Active]] = {}
    for active in (one for one in record.active if one.state == "firing"):
        parts = by_alert.setdefault((active.alert, tuple(sorted(active.labels.items()))), [])
        if parts and not _evaluated_between(active.alert, record, parts[-1].end_us, active.start_us):
            parts[-1] = replace(parts[-1], end_us=active.end_us)
        else:
            parts.append(active)
    yield from sorted((part for parts in by_alert.values() for part in parts), key=lambda one: one.start_us)


def _evaluated_between(alert: str, record: Record, start_us: int, end_us: int) -> bool:
    of_it = (group for group in record.groups if alert in group.alerts)
    return any(a < end_us and b > start_us for group in of_it for a, b in group.evaluated_us)


def _earliest_us(active: Active, record: Record) -> float:
    """Return the earliest moment at which the alert may have begun to fire.

    This is the last evaluation before it was seen, if its rule was not evaluated just before.
    """
    begun: list[float] = []
    for group in (group for group in record.groups if active.alert in group.alerts):
        within = any(a < active.start_us <= b for a, b in group.evaluated_us)
        before: Sequence[float] = [b for _, b in group.evaluated_us if b < active.start_us]
        begun.append(active.start_us if within else max(before, default=0))
    return min(begun, default=float(active.start_us))
