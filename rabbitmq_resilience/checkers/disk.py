"""Check that no node comes near a full disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.measured import (
    Curve,
    curves,
    free_ratios,
    measured_us,
    of_nodes,
    outside,
    seen,
    unseen,
)
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.events import ClusterEvent, MachineEvent


class Disk(InvariantSpec):
    """From the steady phase to the end, the free disk of each node stays above ``free_ratio_min`` times the limit of
    its alarm. If ``taken_bytes_max`` is stated, the free disk never sinks by more than that below its first value. For
    brokers that the suite itself started, which share a disk with each other and with other programs, it bounds the
    growth of the files in a broker's own folder. That is measured every 5 s; the verdict is UNKNOWN if it was not, for
    example if the bound was added later.

    If a step of the schedule raises a node's disk alarm, that node is exempt until ``grace_s`` after the healing. The
    verdict is UNKNOWN if a node is still short of disk when the record ends."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})
    needs_metrics: ClassVar[bool] = True

    free_ratio_min: Annotated[float, Field(gt=0)] = 1.0
    taken_bytes_max: Annotated[int, Field(ge=1)] | None = None
    grace_s: Annotated[float, Field(ge=0)] = 10

    def check(self, history: History) -> Finding:
        facts = history.facts
        free, ratios = of_nodes(curves(history.metrics, "disk_free")), free_ratios(history.metrics)
        span = measured_us(history, facts)
        if span is None or not ratios:
            return Finding(Verdict.UNKNOWN, "no node reported its free disk together with its limit")
        least = {node: self._demanded(facts, node, ratio.within(*span)) for node, ratio in ratios.items()}
        stored = {node: curve.within(*span) for node, curve in _stored(facts).items()}
        if _share_a_disk(facts):
            taken = {node: _more(curve) for node, curve in stored.items()}
        else:
            taken = {node: _less(self._demanded(facts, node, c.within(*span))) for node, c in free.items()}
        if not any(map(len, least.values())):
            return Finding(Verdict.UNKNOWN, "no node was looked at while its disk was not short on purpose")
        lowest = sorted(self._lowest(facts, least))
        most = sorted(self._most(facts, taken, stored), reverse=True)
        wrong = [text for ratio, text in lowest if ratio <= self.free_ratio_min]
        wrong += [text for count, text in most if self.taken_bytes_max is not None and count > self.taken_bytes_max]
        numbers = {
            "free_ratio_min": round(lowest[0][0], 4),
            "taken_bytes_max": int(most[0][0]) if most else None,
            "violations": len(wrong),
        }
        coverage = seen(facts, free, span)
        if wrong:
            return Finding(Verdict.INVALID, wrong[0], numbers, tuple(wrong[:EXAMPLES_MAX]), coverage)
        missing = unseen(facts, free, span) or next(self._never_free(facts, ratios, span), "")
        if not missing and self.taken_bytes_max is not None and _share_a_disk(facts):
            missing = (unlooked := unseen(facts, stored, span)) and f"of what brokers stored, {unlooked}"
        if missing:
            return Finding(Verdict.UNKNOWN, f"{missing}; in the observed time, {lowest[0][1]}", numbers, (), coverage)
        return Finding(Verdict.VALID, f"at the least, {lowest[0][1]}", numbers, (), coverage)

    def _lowest(self, facts: Facts, found: Mapping[str, Curve]) -> Iterator[tuple[float, str]]:
        for node, ratio in found.items():
            if len(ratio):
                t, value = int(ratio.t_us[ratio.values.argmin()]), float(ratio.values.min())
                text = f"{node} had {value:.1f} times its limit free"
                yield value, f"{text} at {facts.at(t)}, {facts.faults_during(t, t)}"

    def _most(
        self, facts: Facts, found: Mapping[str, Curve], stored: Mapping[str, Curve]
    ) -> Iterator[tuple[float, str]]:
        for node, taken in found.items():
            if len(taken):
                t, value = int(taken.t_us[taken.values.argmax()]), float(taken.values.max())
                what = "more in its folder" if node in stored else "less free"
                text = f"{node} had {value:.0f} bytes {what} than at first"
                yield value, f"{text} at {facts.at(t)}, {facts.faults_during(t, t)}"

    def _never_free(self, facts: Facts, ratios: Mapping[str, Curve], span_us: tuple[int, int]) -> Iterator[str]:
        """Yield a text for each node whose disk was still short in its last sample."""
        for node, ratio in ratios.items():
            looks = ratio.within(*span_us)
            if len(looks) and looks.values[-1] <= self.free_ratio_min:
                at = facts.at(int(looks.t_us[-1]))
                yield f"{node} was still short of disk in its last sample, at {at}: let the load go on"

    def _demanded(self, facts: Facts, node: str, curve: Curve) -> Curve:
        """Return the curve without the times in which a step makes the node's disk short."""
        full = [step for step in facts.steps if step.injected and step.effect.alarm == "disk" and node in step.alarmed]
        ends = [(step.possible_us[0], step.possible_us[1] + self.grace_s * 1e6) for step in full]
        rows = outside(curve.t_us, ends)
        return Curve(curve.t_us[rows], curve.values[rows])


def _less(free: Curve) -> Curve:
    return Curve(free.t_us, free.values[:1] - free.values)


def _more(stored: Curve) -> Curve:
    return Curve(stored.t_us, stored.values - stored.values[:1])


def _share_a_disk(facts: Facts) -> bool:
    return any(event.driver != "attached" for event in facts.of_kind(ClusterEvent))


def _stored(facts: Facts) -> Mapping[str, Curve]:
    """Return the bytes in each broker's own folder, as a curve for each node for which they were measured."""
    looks = list(facts.of_kind(MachineEvent))
    nodes = {node for look in looks for node in look.stored_bytes}
    of_node = {node: [look for look in looks if node in look.stored_bytes] for node in sorted(nodes)}
    return {
        node: Curve(
            np.array([look.t_us for look in mine], np.int64),
            np.array([look.stored_bytes[node] for look in mine], np.float64),
        )
        for node, mine in of_node.items()
    }
