"""No node uses more memory than its high watermark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.measured import (
    Curve,
    curves,
    measured_us,
    memory_ratios,
    of_nodes,
    outside,
    seen,
    unseen,
)
from rabbitmq_resilience.invariants.steps import NEVER_US
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.invariants.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Number, Verdict


class Memory(InvariantSpec):
    """The resident memory of each node stays below ``ratio_max`` of its high watermark, from the steady phase to the
    end, and below ``bytes_max`` where that is stated: memory that stays flat, whatever waits in queues. Where a step of
    the schedule raises a node's memory alarm, that node is exempt until ``grace_s`` after its healing; one that is over
    it still when the record ends leaves it UNKNOWN."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})
    needs_metrics: ClassVar[bool] = True

    ratio_max: Annotated[float, Field(gt=0)] = 1.0
    bytes_max: Annotated[int, Field(ge=1)] | None = None
    grace_s: Annotated[float, Field(ge=0)] = 10

    def check(self, history: History) -> Finding:
        facts = history.facts
        ratios, span = memory_ratios(history.metrics), measured_us(history, facts)
        if span is None or not ratios:
            return Finding(Verdict.UNKNOWN, "no node told how much memory it uses, and of how much")
        judged = {node: self._demanded(facts, node, ratio.within(*span)) for node, ratio in ratios.items()}
        highest = {node: (ratio.values.max(), ratio) for node, ratio in judged.items() if len(ratio)}
        if not highest:
            return Finding(Verdict.UNKNOWN, "no node was looked at while its memory was not full on purpose")
        told = [
            (float(high), f"{node} used {high:.1%} of its watermark at {facts.at(t)}, {facts.beside(t, t)}")
            for node, (high, ratio) in highest.items()
            for t in [int(ratio.t_us[ratio.values.argmax()])]
        ]
        told.sort(reverse=True)
        over = [text for ratio, text in told if ratio >= self.ratio_max]
        used = self._used(history, facts, span)
        over += [text for count, text in used if self.bytes_max is not None and count >= self.bytes_max]
        numbers: dict[str, Number] = {"memory_ratio_max": round(told[0][0], 4), "nodes_over": len(over)}
        numbers |= {"memory_bytes_max": int(used[0][0])}
        numbers |= {"exempt_s": seconds(sum(end - start for start, end in self._exempt(facts, span[1])))}
        missing = unseen(facts, ratios, span) or next(self._never_free(facts, ratios, span), "")
        coverage = seen(facts, ratios, span)
        if over:
            return Finding(Verdict.INVALID, over[0], numbers, tuple(over[:EXAMPLES_MAX]), coverage)
        if missing:
            return Finding(Verdict.UNKNOWN, f"{missing}; as far as was seen, {told[0][1]}", numbers, (), coverage)
        return Finding(Verdict.VALID, f"at most, {told[0][1]}", numbers, (), coverage)

    def _used(self, history: History, facts: Facts, span_us: tuple[int, int]) -> list[tuple[float, str]]:
        """The most bytes of each node, the most of all first."""
        found = []
        for node, curve in of_nodes(curves(history.metrics, "memory_used")).items():
            used = self._demanded(facts, node, curve.within(*span_us))
            if len(used):
                t, count = int(used.t_us[used.values.argmax()]), float(used.values.max())
                found.append((count, f"{node} used {count:.0f} bytes at {facts.at(t)}, {facts.beside(t, t)}"))
        return sorted(found, reverse=True)

    def _never_free(self, facts: Facts, ratios: Mapping[str, Curve], span_us: tuple[int, int]) -> Iterator[str]:
        """The nodes whose memory was full on purpose, and was not seen to be free again."""
        for node, ratio in ratios.items():
            looks = ratio.within(*span_us)
            if len(looks) and looks.values[-1] >= self.ratio_max:
                at = facts.at(int(looks.t_us[-1]))
                yield f"{node} was still over it when it told for the last time, at {at}: let the load go on for longer"

    def _demanded(self, facts: Facts, node: str, ratio: Curve) -> Curve:
        end_us = facts.events[-1].t_us
        rows = outside(ratio.t_us, self._exempt(facts, end_us, node))
        return Curve(ratio.t_us[rows], ratio.values[rows])

    def _exempt(self, facts: Facts, end_us: int, node: str | None = None) -> list[tuple[float, float]]:
        """When memory is full on purpose: on ``node``, or anywhere."""
        full = [s for s in facts.steps if s.injected and s.alarm == "memory" and (node is None or node in s.alarmed)]
        ends = [(step.possible_us[0], step.possible_us[1] + self.grace_s * 1e6) for step in full]
        return [(start, min(end, end_us) if end < NEVER_US else end_us) for start, end in ends]
