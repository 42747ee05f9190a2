"""What was delivered is acknowledged in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rabbitmq_resilience.invariants.measured import UNSEEN_S_MAX, Curve, curves
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.invariants.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.record.events import DrainEvent

#: Nodes are asked every second: one that spoke at last so shortly before the others spoke to the end.
TO_THE_END_S = 2.0


class Unacked(InvariantSpec):
    """After the drain, and before the consumers go, no queue holds a message that is delivered and not acknowledged.
    Of the nodes that spoke of it to the end, the one that says the most counts. A queue of which no node told since the
    drain was over, or for the last 15 s, leaves it UNKNOWN."""

    needs_metrics: ClassVar[bool] = True

    def check(self, history: History) -> Finding:
        facts = history.facts
        if not facts.queues or "drain" not in facts.phases or "end" not in facts.phases:
            return Finding(Verdict.UNKNOWN, "the run did not come to the end of its drain")
        found = curves(history.metrics, "unacked")
        drain_us, end_us = facts.phases["drain"], facts.consumers_gone_us
        drained_us = max((event.t_us for event in facts.of_kind(DrainEvent)), default=drain_us)
        due_us = max(drained_us, end_us - UNSEEN_S_MAX * 1e6)
        last = {}
        for queue in facts.queues:
            told = [curve.within(due_us, end_us) for (_, name), curve in found.items() if name == queue.name]
            last[queue.name] = _held_at_last(told)
        peak = sum(_peak(curve) for (_, queue), curve in found.items() if queue in last)
        held = {queue: count for queue, count in last.items() if count}
        numbers = {"unacked_at_end": sum(held.values()), "unacked_max": peak}
        told_of = [f"{queue} held {n} unacknowledged messages after the drain" for queue, n in held.items()]
        silent = [queue for queue, count in last.items() if count is None]
        coverage = Coverage(len(last) - len(silent), len(last), "queues")
        if held:
            return Finding(Verdict.INVALID, told_of[0], numbers, tuple(told_of[:EXAMPLES_MAX]), coverage)
        if silent:
            summary = f"no node told of {', '.join(silent[:5])} when the drain was over"
            return Finding(Verdict.UNKNOWN, summary, numbers, (), coverage)
        summary = f"no delivery was left unacknowledged {seconds(end_us - drain_us):g} s after the drain began"
        return Finding(Verdict.VALID, summary, numbers, (), coverage)


def _held_at_last(curves_of: Sequence[Curve]) -> int | None:
    """Return the most that any node said at last of a queue, of those that spoke to the end; None if none spoke.

    A node that leads the queue no more may go on saying that it holds nothing.
    """
    last = [(int(curve.t_us[-1]), int(curve.values[-1])) for curve in curves_of if len(curve)]
    ends_us = max((t_us for t_us, _ in last), default=0)
    return max((count for t_us, count in last if ends_us - t_us <= TO_THE_END_S * 1e6), default=None)


def _peak(curve: Curve) -> int:
    return int(curve.values.max()) if len(curve) else 0
