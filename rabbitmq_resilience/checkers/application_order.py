"""Judge the order of an application's messages, where brokers promise one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, Verdict
from rabbitmq_resilience.history.events import OvertakenEvent


def order_of_application(facts: Facts, order: Mapping[str, Mapping[str, int]]) -> Finding:
    """Return what is to be said of the order in which messages came. ``order``: that of "application_use"."""
    judged = {queue: of for queue, of in order.items() if of.get("judged")}
    total = {name: sum(of.get(name, 0) for of in order.values()) for name in ("judged", "shared", "equal")}
    overtaken = list(facts.of_kind(OvertakenEvent))
    numbers = {"queues_judged": len(judged), "overtaken": len(overtaken), **total}
    coverage = Coverage(total["judged"], sum(total.values()), "deliveries")
    left_out = "; ".join(_left_out(order))
    if not judged:
        return Finding(Verdict.UNKNOWN, left_out or "no message came whose order is known", numbers, (), coverage)
    summary = f"{counted(len(overtaken), 'message was', 'messages were')} overtaken in {counted(len(judged), 'queue')}"
    summary += f"; not judged: {left_out}" if left_out else ""
    examples = tuple(
        f"a message that {event.publisher} sent at {facts.at(event.sent_us)} came out of {event.queue} to "
        f"{event.process} at {facts.at(event.t_us)}, after one that it sent at {facts.at(event.later_us)} on the same "
        f"channel, {facts.faults_during(event.t_us, event.t_us)}"
        for event in overtaken[:EXAMPLES_MAX]
    )
    if overtaken and facts.cluster is not None and facts.cluster.splits:
        text = f"{summary}; they may have been taken on two sides of a split, which the cluster's mode allows"
        return Finding(Verdict.UNKNOWN, text, numbers, examples, coverage)
    if overtaken:
        return Finding(Verdict.INVALID, f"{summary}; {examples[0]}", numbers, examples, coverage)
    if unseen := _unseen(facts, max(of["last_us"] for of in judged.values())):
        return Finding(Verdict.UNKNOWN, f"{unseen}; in the observed time, {summary}", numbers, (), coverage)
    return Finding(Verdict.VALID, summary, numbers, (), coverage)


def _left_out(order: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield which messages are not judged, and why."""
    if shared := sorted(queue for queue, of in order.items() if of.get("shared")):
        yield f"more than one consumer at a time read from {', '.join(shared)}"
    if equal := sorted(queue for queue, of in order.items() if of.get("equal")):
        yield f"messages of {', '.join(equal)} are equal to others, as they have no message_id or share it"


def _unseen(facts: Facts, last_us: int) -> str:
    """Return in words the fault after which no message was judged; empty if there is none."""
    late = (step for step in facts.steps if step.is_fault and step.injected and step.possible_us[0] > last_us)
    step = next(late, None)
    return f"no message was judged after {step} had begun at {facts.at(step.possible_us[0])}" if step else ""
