"""Check that no node comes near a full disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.measured import Curve, curves, free_ratios, measured_us, of_nodes, seen, unseen
from rabbitmq_resilience.checkers.node_bounds import ExemptNodes, bound_finding, breached_at_last, extremes, within
from rabbitmq_resilience.checkers.verdict import Finding, History, InvariantSpec, Verdict
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
        exempt = ExemptNodes(facts, "disk", self.grace_s)
        looked, stored = within(ratios, span), within(_stored(facts), span)
        lowest = extremes(facts, exempt.left_out(looked), _times_free, highest=False)
        if not lowest:
            return Finding(Verdict.UNKNOWN, "no node was looked at while its disk was not short on purpose")
        if shared := _share_a_disk(facts):
            demanded = exempt.left_out(stored)
            most = extremes(facts, {node: _more(curve) for node, curve in demanded.items()}, _stored_more, highest=True)
        else:
            demanded = exempt.left_out(within(free, span))
            most = extremes(facts, {node: _less(curve) for node, curve in demanded.items()}, _less_free, highest=True)
        wrong = [text for ratio, text in lowest if ratio <= self.free_ratio_min]
        wrong += [text for count, text in most if self.taken_bytes_max is not None and count > self.taken_bytes_max]
        numbers = {
            "free_ratio_min": round(lowest[0][0], 4),
            "taken_bytes_max": int(most[0][0]) if most else None,
            "violations": len(wrong),
        }
        still_short = (
            f"{node} was still short of disk in its last sample, at {at}: let the load go on"
            for node, at in breached_at_last(facts, looked, lambda ratio: ratio <= self.free_ratio_min)
        )
        missing = unseen(facts, free, span) or next(still_short, "")
        if not missing and self.taken_bytes_max is not None and shared:
            missing = (unlooked := unseen(facts, stored, span)) and f"of what brokers stored, {unlooked}"
        return bound_finding(wrong, missing, lowest[0][1], numbers, seen(facts, free, span), side="at the least")


def _times_free(node: str, ratio: float) -> str:
    return f"{node} had {ratio:,.2f} times its limit free"


def _stored_more(node: str, count: float) -> str:
    return f"{node} had {count:.0f} bytes more in its folder than at first"


def _less_free(node: str, count: float) -> str:
    return f"{node} had {count:.0f} bytes less free than at first"


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
