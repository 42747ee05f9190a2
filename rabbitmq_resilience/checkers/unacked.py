"""Check that each delivered message is acknowledged in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.instability import leaders
from rabbitmq_resilience.checkers.measured import UNSEEN_S_MAX, Curve, curves
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.events import DrainEvent

#: Nodes are asked every second. A node whose last answer is this close to the latest one reported to the end.
TO_THE_END_S = 2.0


class Unacked(InvariantSpec):
    """After the drain, and before the consumers go, no queue holds a message that is delivered and not acknowledged.

    The number counts that the queue's leader of the last 15 s reports, as another node may go on reporting what it held
    when it led. If there is no such node, the nodes that reported to the end must agree on whether anything is held; so
    must these and the last number of a leader that did not report to the end. If they do not agree, the verdict is
    UNKNOWN. It is also UNKNOWN if no node, or not the leader, reported on a queue since the drain was over, or for the
    last 15 s. ``unacked_max``: the most that one node reported of one queue.
    """

    needs_metrics: ClassVar[bool] = True

    def check(self, history: History) -> Finding:
        facts = history.facts
        if not facts.queues or "drain" not in facts.phases or "end" not in facts.phases:
            return Finding(Verdict.UNKNOWN, "the run did not come to the end of its drain")
        found = curves(history.metrics, "unacked")
        drain_us, end_us = facts.phases["drain"], facts.consumers_gone_us
        drained_us = max((event.t_us for event in facts.of_kind(DrainEvent)), default=drain_us)
        due_us = max(drained_us, end_us - UNSEEN_S_MAX * 1e6)
        last: dict[str, _Held] = {}
        for queue in facts.queues:
            reported = {node: curve.within(due_us, end_us) for (node, q), curve in found.items() if q == queue.name}
            last[queue.name] = _held_at_last(reported, _leader(facts, queue.name, end_us))
        peak = max((_peak(curve) for (_, queue), curve in found.items() if queue in last), default=0)
        held = {queue: one.least for queue, one in last.items() if one.least}
        numbers = {"unacked_at_end": sum(held.values()), "unacked_max": peak}
        examples = [f"{queue} held {n} unacknowledged messages after the drain" for queue, n in held.items()]
        unclear = [f"{queue} {one.why}" for queue, one in last.items() if one.why]
        coverage = Coverage(len(last) - len(unclear), len(last), "queues")
        if held:
            return Finding(Verdict.INVALID, examples[0], numbers, tuple(examples[:EXAMPLES_MAX]), coverage)
        if unclear:
            return Finding(Verdict.UNKNOWN, "; ".join(unclear[:EXAMPLES_MAX]), numbers, (), coverage)
        summary = f"no delivery was left unacknowledged {seconds(end_us - drain_us):g} s after the drain began"
        return Finding(Verdict.VALID, summary, numbers, (), coverage)


@dataclass(frozen=True)
class _Held:
    """The last known state of a queue. ``least``: how many messages it held at least. ``why``: why it is not known
    whether it held any."""

    least: int = 0
    why: str = ""


def _leader(facts: Facts, queue: str, end_us: float) -> str | None:
    """Return the node that led the queue in each sample of the last 15 s; None if there was none, or several."""
    looks = leaders(facts).get(queue, ())
    lately = {node for t_us, node in looks if end_us - UNSEEN_S_MAX * 1e6 <= t_us <= end_us}
    return lately.pop() if len(lately) == 1 else None


def _held_at_last(reported: Mapping[str, Curve], leader: str | None) -> _Held:
    """Return what a queue held by the last numbers of the nodes that reported to the end."""
    last = {node: (int(curve.t_us[-1]), int(curve.values[-1])) for node, curve in reported.items() if len(curve)}
    ends_us = max((t_us for t_us, _ in last.values()), default=0)
    counts = {node: count for node, (t_us, count) in last.items() if ends_us - t_us <= TO_THE_END_S * 1e6}
    if not counts:
        return _Held(why="was reported by no node when the drain was over")
    if leader in counts:
        return _Held(counts[leader])
    if leader is not None and leader not in last:
        return _Held(why=f"was not reported by {leader}, its leader, when the drain was over")
    if leader is not None:
        counts[leader] = last[leader][1]
    least, most = min(counts.values()), max(counts.values())
    if most and not least:
        listed = ", ".join(f"{node} {count}" for node, count in sorted(counts.items()))
        whose = "its leader is not known" if leader is None else f"its leader {leader} did not report to the end"
        return _Held(why=f"held messages by some nodes and none by others ({listed}), and {whose}")
    return _Held(least)


def _peak(curve: Curve) -> int:
    return int(curve.values.max()) if len(curve) else 0
