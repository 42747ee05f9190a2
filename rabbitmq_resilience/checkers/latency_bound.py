"""Check that messages are confirmed, or arrive, within a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.lateness import kept_from_running
from rabbitmq_resilience.checkers.machine_load import describe_others
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    InvariantSpec,
    Number,
    Verdict,
)
from rabbitmq_resilience.checkers.waits import (
    LAGGED_MAX,
    NEVER,
    NOT_HELD,
    Moments,
    Waits,
    confirm_waits,
    delivery_waits,
    publishers_recorded,
)
from rabbitmq_resilience.model.base import Spec


class LatencyBound(Spec):
    """The ``percentile`` of a latency is at most ``within_ms``: the latency ``of`` a ``confirm``, or of a message from
    ``end_to_end``.

    ``when`` chooses the messages, by when they were due: in the ``steady`` phase, in ``chaos`` (while faults are
    played), or ``always`` (from the steady phase to the end of publishing)."""

    of: Literal["confirm", "end_to_end"] = "end_to_end"
    percentile: Annotated[float, Field(gt=0, le=100)] = 99.0
    within_ms: Annotated[float, Field(gt=0, le=86_400_000)] = 1000.0
    when: Literal["steady", "chaos", "always"] = "steady"

    @property
    def name(self) -> str:
        return f"{self.of}_p{self.percentile:g}_{self.when}".replace(".", "_")

    def __str__(self) -> str:
        what = "confirms" if self.of == "confirm" else "messages from end to end"
        return f"p{self.percentile:g} of {what}, {self.when}"

    def span_us(self, facts: Facts) -> Period | None:
        """Return the period whose messages count; None if a phase was not recorded."""
        phases = facts.phases
        first, last = {"steady": ("steady", "chaos"), "chaos": ("chaos", "recovery"), "always": ("steady", "drain")}[
            self.when
        ]
        return (phases[first], phases[last]) if first in phases and last in phases else None


class LatencyBounds(InvariantSpec):
    """Each of ``bounds`` holds. A message's time begins when it was due by the target rate, so that a stall of a
    publisher is not hidden (coordinated omission). The messages that it should have sent during the stall count: they
    are answered with the first message after the stall, or never if none was sent. Without a target rate the time
    begins when a message is sent. A message that is not confirmed, or is confirmed and never arrives, is later than any
    bound. Messages that no queue took do not count.

    A publisher may lag by itself: it sends late or nothing, though it is connected, not blocked and has room in flight.
    Then this machine does not hold the load. With more than 1 % of such messages, a bound that is kept is UNKNOWN. A
    bound is also UNKNOWN then if it is broken only by the time since messages were due, and not since they were sent. A
    broken bound is UNKNOWN too while other programs take much of this machine, or if a broker waited for a processor
    for half of the time or more. Last, it is UNKNOWN if it is broken only by messages that were not sent, in a record
    without the number of publishers."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})

    bounds: Annotated[tuple[LatencyBound, ...], Field(min_length=1)] = (LatencyBound(),)

    def check(self, history: History) -> Finding:
        made = {"confirm": confirm_waits, "end_to_end": delivery_waits}
        waits = {of: made[of](history) for of in dict.fromkeys(bound.of for bound in self.bounds)}
        looked = [_look(bound, waits[bound.of], history.facts) for bound in self.bounds]
        verdicts = [each.verdict for each in looked]
        worst = next(v for v in (Verdict.INVALID, Verdict.UNKNOWN, Verdict.VALID) if v in verdicts)
        deciding = [each for each in looked if each.verdict is worst]
        messages = int(sum(each.numbers.get("messages", 0) or 0 for each in looked))  # type: ignore[misc]
        return Finding(
            worst,
            "; ".join(each.summary for each in deciding),
            {f"{b.name}_{n}": v for b, each in zip(self.bounds, looked, strict=True) for n, v in each.numbers.items()},
            tuple(example for each in deciding for example in each.examples)[:EXAMPLES_MAX],
            Coverage(messages, messages, "messages"),
        )


def _look(bound: LatencyBound, waits: Waits, facts: Facts) -> Finding:
    span_us = bound.span_us(facts)
    if bound.of == "confirm" and not facts.heeds_confirms:
        return Finding(Verdict.UNKNOWN, f"{bound}: publishers await no confirms")
    if span_us is None:
        return Finding(Verdict.UNKNOWN, f"{bound}: the events do not state when that was")
    counted = waits.due_within(*span_us)
    if not len(counted):
        return Finding(Verdict.UNKNOWN, f"{bound}: no message was due then")
    due_ms = percentile_ms(counted.due_us, counted.answered_us, bound.percentile)
    sent_ms = percentile_ms(counted.sent_us, counted.answered_us, bound.percentile)
    lagged = counted.lagged_ratio
    numbers: dict[str, Number] = {
        "ms": _number(due_ms),
        "from_sent_ms": _number(sent_ms),
        "max_ms": _number(percentile_ms(counted.due_us, counted.answered_us, 100)),
        "messages": int(np.count_nonzero(~counted.omitted)),
        "lagged_ratio": round(lagged, 4),
    }
    reached = f"{_text(due_ms)} ({_text(sent_ms)} from when they were sent)"
    summary = f"{bound}: {reached}, allowed are {bound.within_ms:g} ms"
    broken = due_ms > bound.within_ms
    doubts = _of_this_machine(facts, span_us) if broken else []
    if lagged > LAGGED_MAX and sent_ms <= bound.within_ms:
        doubts = [f"publishers lagged by themselves with {lagged:.0%} of them: {NOT_HELD}", *doubts]
    if broken and not publishers_recorded(facts):
        sent = counted.chosen(~counted.omitted)
        if not len(sent) or percentile_ms(sent.due_us, sent.answered_us, bound.percentile) <= bound.within_ms:
            doubts = [*doubts, "the record does not state how many publishers there were, and what each had to send"]
    if doubts:
        return Finding(Verdict.UNKNOWN, f"{summary}; {'; '.join(doubts)}", numbers)
    return Finding(
        Verdict.INVALID if broken else Verdict.VALID, summary, numbers, _slowest(counted, facts) if broken else ()
    )


def _of_this_machine(facts: Facts, span_us: Period) -> list[str]:
    """Return the reasons why this machine may have made answers late."""
    kept = kept_from_running(facts, *span_us)
    return [*([f"{kept}: {NOT_HELD}"] if kept else []), *filter(None, [describe_others(facts, *span_us)])]


def percentile_ms(from_us: Moments, until_us: Moments, percentile: float) -> float:
    """Return the shortest time, in ms, within which this percentage was answered; infinite if it never was."""
    rank = max(1, math.ceil(len(from_us) * percentile / 100)) - 1
    times_us = np.where(until_us == NEVER, NEVER, until_us - from_us)
    reached = int(np.partition(times_us, rank)[rank])
    return math.inf if reached == NEVER else reached / 1000


def _slowest(waits: Waits, facts: Facts) -> tuple[str, ...]:
    times_us = np.where(waits.answered_us == NEVER, NEVER, waits.answered_us - waits.due_us)
    worst: Sequence[int] = np.argsort(-times_us, kind="stable")[:EXAMPLES_MAX].tolist()

    def text(row: int) -> str:
        due_us = float(waits.due_us[row])
        took = "was never answered" if times_us[row] == NEVER else f"took {_text(times_us[row] / 1000)}"
        return f"a message due at {facts.at(due_us)} {took}, {facts.faults_during(due_us, due_us)}"

    return tuple(map(text, worst))


def _number(ms: float) -> float | None:
    return None if math.isinf(ms) else round(ms, 3)


def _text(ms: float) -> str:
    return "never" if math.isinf(ms) else f"{ms:.3g} ms" if ms < 1000 else f"{ms / 1000:.2f} s"
