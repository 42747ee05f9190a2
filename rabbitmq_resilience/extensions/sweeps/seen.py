"""The judged run from which measures compute their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from rabbitmq_resilience.checkers.latency_bound import LatencyBound
from rabbitmq_resilience.checkers.message_ledger import ledger_of
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.traffic import TICK_US
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.checkers.waits import Waits, confirm_waits, delivery_waits
from rabbitmq_resilience.runner.run_line import RunLine
from rabbitmq_resilience.workload.perf_test_options import Window

#: Which part of a run is measured; the same words as ``LatencyBound.when``.
Over = Literal["steady", "chaos", "always"]


@dataclass(frozen=True)
class JudgedRun:
    """A run that was judged.

    ``played``: its line in a night. ``document``: its verdict.json. ``perf_test``: the windows that PerfTest measured
    on the same cluster, if it was played. ``awaited``: whether publishers awaited confirms."""

    history: History
    over: Over
    played: RunLine
    document: Mapping[str, Any]
    perf_test: Sequence[Window] = ()
    awaited: bool = True

    @cached_property
    def span_us(self) -> Period | None:
        """Return the part of the run that is measured; None if the run has no such phase."""
        return LatencyBound(when=self.over).span_us(self.history.facts)

    @cached_property
    def confirms(self) -> Waits:
        """Return the waits of publishers for confirms."""
        return confirm_waits(self.history)

    @cached_property
    def receipts(self) -> Waits:
        """Return the times from a message's due time, or its sending, to its receipt."""
        return delivery_waits(self.history)

    @cached_property
    def confirmed_per_s(self) -> float | None:
        """Return the rate of confirmed messages in the span; None without messages or without a span."""
        traffic, span_us = ledger_of(self.history).traffic, self.span_us
        if traffic is None or span_us is None or span_us[1] <= span_us[0]:
            return None
        first, last = (int((end - traffic.span_us[0]) // TICK_US) for end in span_us)
        ticks = traffic.messages[max(0, first) : last]
        return float(ticks.sum()) / (len(ticks) * TICK_US / 1e6) if len(ticks) else None
