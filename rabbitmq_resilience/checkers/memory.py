"""Check that no node uses more memory than its high watermark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.measured import Curve, curves, measured_us, memory_ratios, of_nodes, seen, unseen
from rabbitmq_resilience.checkers.node_bounds import ExemptNodes, bound_finding, breached_at_last, extremes, within
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import Finding, History, InvariantSpec, Number, Verdict


class Memory(InvariantSpec):
    """The resident memory of each node stays below ``ratio_max`` of its high watermark from the steady phase to the
    end, and below ``bytes_max`` if that is stated. ``bytes_max`` demands memory that stays flat, however many messages
    wait in queues.

    If a step of the schedule raises a node's memory alarm, that node is exempt until ``grace_s`` after the healing. The
    verdict is UNKNOWN if such a node still exceeds the bound in the last sample of the record.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})
    needs_metrics: ClassVar[bool] = True

    ratio_max: Annotated[float, Field(gt=0)] = 1.0
    bytes_max: Annotated[int, Field(ge=1)] | None = None
    grace_s: Annotated[float, Field(ge=0)] = 10

    def check(self, history: History) -> Finding:
        facts = history.facts
        ratios, span = memory_ratios(history.metrics), measured_us(history, facts)
        if span is None or not ratios:
            return Finding(Verdict.UNKNOWN, "no node reported its memory use and its watermark")
        exempt = ExemptNodes(facts, "memory", self.grace_s)
        looked = within(ratios, span)
        demanded = exempt.left_out(looked)
        peaks = extremes(facts, demanded, _part_used, highest=True)
        if not peaks:
            return Finding(Verdict.UNKNOWN, "no node was measured while its memory was not full on purpose")
        bytes_used = within(of_nodes(curves(history.metrics, "memory_used")), span)
        bytes_demanded = exempt.left_out(bytes_used)
        used = extremes(facts, bytes_demanded, _bytes_used, highest=True)
        bytes_max = math.inf if self.bytes_max is None else self.bytes_max
        over = [text for ratio, text in peaks if ratio >= self.ratio_max]
        over += [text for count, text in used if count >= bytes_max]
        numbers: dict[str, Number] = {
            "memory_ratio_max": round(peaks[0][0], 4),
            "nodes_over": len({*_over(demanded, self.ratio_max), *_over(bytes_demanded, bytes_max)}),
            "memory_bytes_max": int(used[0][0]),
            "exempt_s": seconds(sum(end - start for start, end in exempt.periods_us())),
        }
        still_over = (
            f"{node} was still over the bound in its last sample, at {at}: let the load go on for longer"
            for node, at in (
                *breached_at_last(facts, looked, lambda ratio: ratio >= self.ratio_max),
                *breached_at_last(facts, bytes_used, lambda count: count >= bytes_max),
            )
        )
        missing = unseen(facts, ratios, span) or next(still_over, "")
        return bound_finding(over, missing, peaks[0][1], numbers, seen(facts, ratios, span), side="at most")


def _over(found: Mapping[str, Curve], bound: float) -> Iterator[str]:
    """Yield each node whose curve reaches the bound."""
    yield from (node for node, curve in found.items() if len(curve) and curve.values.max() >= bound)


def _part_used(node: str, ratio: float) -> str:
    return f"{node} used {ratio:.1%} of its watermark"


def _bytes_used(node: str, count: float) -> str:
    return f"{node} used {count:.0f} bytes"
