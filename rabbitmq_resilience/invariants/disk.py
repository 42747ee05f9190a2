"""No node's disk comes near full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.measured import (
    Curve,
    curves,
    free_ratios,
    measured_us,
    of_nodes,
    outside,
    seen,
    unseen,
)
from rabbitmq_resilience.invariants.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.record.events import ClusterEvent, MachineEvent


class Disk(InvariantSpec):
    """The free disk of each node stays above ``free_ratio_min`` times the limit below which it raises its alarm, from
    the steady phase to the end; and where ``taken_bytes_max`` is stated, it never sinks by more than that below what
    was free at first. Brokers that the suite itself started share a disk with each other and with other programs, so of
    them that bounds by how much the files in a broker's own folder grow; they are looked at every 5 s, and where they
    were not, as where the bound was added later, it is UNKNOWN.

    Where a step of the schedule raises a node's disk alarm, that node is exempt until ``grace_s`` after its healing;
    one that is short of disk still when the record ends leaves it UNKNOWN."""

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
            return Finding(Verdict.UNKNOWN, "no node told how much disk is free, and how much it wants")
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
            return Finding(Verdict.UNKNOWN, f"{missing}; as far as was seen, {lowest[0][1]}", numbers, (), coverage)
        return Finding(Verdict.VALID, f"at the least, {lowest[0][1]}", numbers, (), coverage)

    def _lowest(self, facts: Facts, found: Mapping[str, Curve]) -> Iterator[tuple[float, str]]:
        for node, ratio in found.items():
            if len(ratio):
                t, value = int(ratio.t_us[ratio.values.argmin()]), float(ratio.values.min())
                yield value, f"{node} had {value:.1f} times its limit free at {facts.at(t)}, {facts.beside(t, t)}"

    def _most(
        self, facts: Facts, found: Mapping[str, Curve], stored: Mapping[str, Curve]
    ) -> Iterator[tuple[float, str]]:
        for node, taken in found.items():
            if len(taken):
                t, value = int(taken.t_us[taken.values.argmax()]), float(taken.values.max())
                what = "more in its folder" if node in stored else "less free"
                yield value, f"{node} had {value:.0f} bytes {what} than at first at {facts.at(t)}, {facts.beside(t, t)}"

    def _never_free(self, facts: Facts, ratios: Mapping[str, Curve], span_us: tuple[int, int]) -> Iterator[str]:
        """The nodes whose disk was short on purpose, and was not seen to have room again."""
        for node, ratio in ratios.items():
            looks = ratio.within(*span_us)
            if len(looks) and looks.values[-1] <= self.free_ratio_min:
                at = facts.at(int(looks.t_us[-1]))
                yield f"{node} was still short of disk when it told for the last time, at {at}: let the load go on"

    def _demanded(self, facts: Facts, node: str, curve: Curve) -> Curve:
        full = [step for step in facts.steps if step.injected and step.alarm == "disk" and node in step.alarmed]
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
    """Return what each broker had in its own folder, where that was looked at."""
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
