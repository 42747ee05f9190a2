"""Check that queues confirm during a stated part of the time, under any fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import lasting_s
from rabbitmq_resilience.checkers.liveness import pauses
from rabbitmq_resilience.checkers.message_ledger import ledger_of
from rabbitmq_resilience.checkers.outages import OUTAGE_S_MIN, Outages, as_if_tried, outages, untried_periods
from rabbitmq_resilience.checkers.times import Period, Times, left
from rabbitmq_resilience.checkers.traffic import Flow, Traffic
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.tools.percentages import most_of


class Uptime(InvariantSpec):
    """For users who have an objective: no outage of a queue is longer than ``outage_s_max``, and each queue is without
    an outage for ``ratio_min`` of the time, from the start of the steady phase to the end of publishing. No fault is an
    excuse.

    An outage begins when the first unconfirmed message was due, or at the queue's last confirm if a message was waiting
    then already. It lasts until the queue's next confirm, or the end of publishing. Outages of less than 1 s are not
    reported and do not count. Time in which no publisher tried to publish may hide an outage. If that decides, the
    verdict is UNKNOWN. The load's own pauses hide none.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})

    outage_s_max: Annotated[float, Field(ge=OUTAGE_S_MIN)] | None = None
    ratio_min: Annotated[float, Field(gt=0, le=1)] | None = None

    @model_validator(mode="after")
    def _objective(self) -> Self:
        if self.outage_s_max is None and self.ratio_min is None:
            raise ValueError("states no objective; write outage_s_max, such as 30, or ratio_min, such as 0.99")
        return self

    def check(self, history: History) -> Finding:
        facts, traffic = history.facts, ledger_of(history).traffic
        if not facts.heeds_confirms:
            return Finding(Verdict.UNKNOWN, "publishers await no confirms, so it is not known what a queue took")
        if traffic is None or not facts.queues:
            return Finding(Verdict.UNKNOWN, "the events do not show the queues and when they were used")
        found = [_Queue.of(facts, traffic, index) for index in facts.published_queues]
        worst = max(found, key=lambda queue: queue.known.longest_s)
        least = max(found, key=lambda queue: queue.known.ratio)
        broken = [text for queue in found for text in self._broken(facts, queue.name, queue.known)]
        hidden = [queue for queue in found if any(self._broken(facts, queue.name, queue.possible))]
        numbers = {
            "outage_s": worst.known.longest_s,
            "queue": worst.name if worst.known.periods else None,
            "ratio": round(1 - least.known.ratio, 4),
        }
        untried = max(found, key=lambda queue: lasting_s(queue.untried))
        coverage = Coverage(round(traffic.span_s - lasting_s(untried.untried), 3), traffic.span_s)
        if worst.known.longest is None:
            summary = "no queue was out for a second"
        else:
            summary = f"the longest outage was {described(facts, worst.name, worst.known.longest)}"
        summary += f"; {least.name} was up for {most_of(1 - least.known.ratio)} of the time; {self._demanded()}"
        if broken:
            return Finding(Verdict.INVALID, summary, numbers, tuple(broken[:EXAMPLES_MAX]), coverage)
        if hidden:
            since = " and ".join(f"{facts.at(a)} to {facts.at(b)}" for a, b in hidden[0].untried[:EXAMPLES_MAX])
            summary = (
                f"no publisher tried to publish to {hidden[0].name} from {since}; in the rest of the time, {summary}"
            )
            return Finding(Verdict.UNKNOWN, summary, numbers, (), coverage)
        return Finding(Verdict.VALID, summary, numbers, (), coverage)

    def _broken(self, facts: Facts, queue: str, found: Outages) -> list[str]:
        bound_s, ratio = self.outage_s_max, 1 - found.ratio
        too_long = [period for period in found.periods if bound_s is not None and lasting_s([period]) > bound_s]
        texts = [described(facts, queue, period) for period in sorted(too_long, key=lambda p: p[0] - p[1])]
        if self.ratio_min is not None and ratio < self.ratio_min:
            texts.append(f"{queue} was up for {most_of(ratio)} of the time, and out for {found.total_s:g} s")
        return texts

    def _demanded(self) -> str:
        bounds = [
            f"no outage over {self.outage_s_max:g} s" if self.outage_s_max is not None else "",
            f"{most_of(self.ratio_min)} of the time" if self.ratio_min is not None else "",
        ]
        return f"demanded: {' and '.join(filter(None, bounds))}"


@dataclass(frozen=True)
class _Queue:
    name: str
    known: Outages
    possible: Outages
    untried: Sequence[Period]

    @classmethod
    def of(cls, facts: Facts, traffic: Traffic, index: int) -> _Queue:
        flow = traffic.flows.get(index, Flow.of_ticks(traffic.ticks))
        paused = pauses(facts, traffic.span_us)
        untried = [part for period in untried_periods(traffic, flow) for part in _outside(period, paused)]
        possible = as_if_tried(traffic, flow, untried)
        return cls(facts.queue_name(index), outages(traffic, flow), possible, untried)


def _outside(period: Period, others: Times) -> list[Period]:
    """Return the parts of the period that are not in ``others`` and last as long as an outage."""
    return [(start, end) for start, end in left(period, others) if end - start >= OUTAGE_S_MIN * 1e6]


def described(facts: Facts, queue: str, period: Period) -> str:
    start, end = period
    return f"{lasting_s([period]):g} s on {queue} from {facts.at(start)}, {facts.faults_during(start, end)}"
