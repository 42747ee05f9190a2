"""Check that no node uses more memory than its high watermark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.measured import (
    Curve,
    curves,
    measured_us,
    memory_ratios,
    of_nodes,
    outside,
    seen,
    unseen,
)
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Number, Verdict


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
        judged = {node: self._demanded(facts, node, ratio.within(*span)) for node, ratio in ratios.items()}
        highest = {node: (ratio.values.max(), ratio) for node, ratio in judged.items() if len(ratio)}
        if not highest:
            return Finding(Verdict.UNKNOWN, "no node was measured while its memory was not full on purpose")
        peaks = [
            (float(high), f"{node} used {high:.1%} of its watermark at {facts.at(t)}, {facts.faults_during(t, t)}")
            for node, (high, ratio) in highest.items()
            for t in [int(ratio.t_us[ratio.values.argmax()])]
        ]
        peaks.sort(reverse=True)
        over = [text for ratio, text in peaks if ratio >= self.ratio_max]
        used = self._used(history, facts, span)
        over += [text for count, text in used if self.bytes_max is not None and count >= self.bytes_max]
        numbers: dict[str, Number] = {"memory_ratio_max": round(peaks[0][0], 4), "nodes_over": len(over)}
        numbers |= {"memory_bytes_max": int(used[0][0])}
        numbers |= {"exempt_s": seconds(sum(end - start for start, end in self._exempt(facts, span[1])))}
        missing = unseen(facts, ratios, span) or next(self._never_free(facts, ratios, span), "")
        coverage = seen(facts, ratios, span)
        if over:
            return Finding(Verdict.INVALID, over[0], numbers, tuple(over[:EXAMPLES_MAX]), coverage)
        if missing:
            return Finding(Verdict.UNKNOWN, f"{missing}; in the observed time, {peaks[0][1]}", numbers, (), coverage)
        return Finding(Verdict.VALID, f"at most, {peaks[0][1]}", numbers, (), coverage)

    def _used(self, history: History, facts: Facts, span_us: tuple[int, int]) -> list[tuple[float, str]]:
        """Return (bytes, text) of the highest memory use of each node, the highest first."""
        found = []
        for node, curve in of_nodes(curves(history.metrics, "memory_used")).items():
            used = self._demanded(facts, node, curve.within(*span_us))
            if len(used):
                t, count = int(used.t_us[used.values.argmax()]), float(used.values.max())
                found.append((count, f"{node} used {count:.0f} bytes at {facts.at(t)}, {facts.faults_during(t, t)}"))
        return sorted(found, reverse=True)

    def _never_free(self, facts: Facts, ratios: Mapping[str, Curve], span_us: tuple[int, int]) -> Iterator[str]:
        """Yield a text for each node whose memory exceeded the bound in its last sample."""
        for node, ratio in ratios.items():
            looks = ratio.within(*span_us)
            if len(looks) and looks.values[-1] >= self.ratio_max:
                at = facts.at(int(looks.t_us[-1]))
                yield f"{node} was still over the bound in its last sample, at {at}: let the load go on for longer"

    def _demanded(self, facts: Facts, node: str, ratio: Curve) -> Curve:
        """Return the part of a node's curve in which the node is not exempt."""
        end_us = facts.events[-1].t_us
        rows = outside(ratio.t_us, self._exempt(facts, end_us, node))
        return Curve(ratio.t_us[rows], ratio.values[rows])

    def _exempt(self, facts: Facts, end_us: int, node: str | None = None) -> list[tuple[float, float]]:
        """Return when steps fill the memory of ``node``, or of any node, with ``grace_s`` after each."""
        full = [
            s for s in facts.steps if s.injected and s.effect.alarm == "memory" and (node is None or node in s.alarmed)
        ]
        ends = [(step.possible_us[0], step.possible_us[1] + self.grace_s * 1e6) for step in full]
        return [(start, min(end, end_us) if end < NEVER_US else end_us) for start, end in ends]
