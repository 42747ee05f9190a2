"""What was delivered is acknowledged in the end."""

from __future__ import annotations

from typing import ClassVar

from invariants.facts import Facts
from invariants.measured import Curve, curves
from invariants.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Verdict, seconds


class Unacked(InvariantSpec):
    """After the drain, and before the consumers go, no queue holds a message that is delivered and not acknowledged.
    A queue of which no node told since the drain began leaves it UNKNOWN."""

    forgives: ClassVar[frozenset[str]] = frozenset({"history_whole"})
    needs_metrics: ClassVar[bool] = True

    def check(self, history: History) -> Finding:
        facts = Facts(history.events)
        if not facts.queues or "drain" not in facts.phases or "end" not in facts.phases:
            return Finding(Verdict.UNKNOWN, "the run did not come to the end of its drain")
        found = curves(history.metrics, "unacked")
        drain_us, end_us = facts.phases["drain"], _consumers_gone_us(facts)
        last = {}
        for queue in facts.queues:
            told = [curve.within(drain_us, end_us) for (_, name), curve in found.items() if name == queue.name]
            last[queue.name] = max(((int(c.t_us[-1]), int(c.values[-1])) for c in told if len(c)), default=None)
        peak = sum(_peak(curve) for (_, queue), curve in found.items() if queue in last)
        held = {queue: seen[1] for queue, seen in last.items() if seen and seen[1]}
        numbers = {"unacked_at_end": sum(held.values()), "unacked_max": peak}
        told_of = [f"{queue} held {n} unacknowledged messages after the drain" for queue, n in held.items()]
        if held:
            return Finding(Verdict.INVALID, told_of[0], numbers, tuple(told_of[:EXAMPLES_MAX]))
        silent = [queue for queue, seen in last.items() if seen is None]
        if silent:
            return Finding(Verdict.UNKNOWN, f"no node told of {', '.join(silent[:5])} after the drain began", numbers)
        summary = f"no delivery was left unacknowledged {seconds(end_us - drain_us):g} s after the drain began"
        return Finding(Verdict.VALID, summary, numbers)


def _peak(curve: Curve) -> int:
    return int(curve.values.max()) if len(curve) else 0


def _consumers_gone_us(facts: Facts) -> int:
    """When the first consumer ended after the drain: the broker then takes back what it had."""
    stopped = (event for event in facts.of_kind("worker") if event["event"] == "stopped")
    gone_us = (event["t_us"] for event in stopped if event["worker"].startswith("consumer"))
    return min((t_us for t_us in gone_us if t_us > facts.phases["drain"]), default=facts.phases["end"])
