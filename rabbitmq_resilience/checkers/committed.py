"""Check that the user's application commits what it acknowledges, by what it writes of its work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.events import ApplicationEvent, ApplicationUseEvent, UncommittedEvent

_ENDS = {"killed": "was killed", "hung": "was killed as it did not end", "stopped": "ended as it was asked to"}


class Committed(InvariantSpec):
    """Each message that a program acknowledged is committed by one of its processes, or by another program that got it
    from the same queue, also if a process was killed.
    It is known from the JSON lines that the program writes to the path in ``RABBITMQ_RESILIENCE_EVENTS``. Without such
    lines the verdict is UNKNOWN: on the wire, a program that acknowledges before its work looks like a fast one.

    It is judged for the programs that wrote that they committed anything, and for messages that have a ``message_id``
    and were confirmed to their publisher. If there are as many lines that say nothing, or that name no message that
    came, as messages that were not committed, the verdict is UNKNOWN. A message that its program published again, with
    the same body and confirmed, counts when it comes again. Reported: messages that were acknowledged before they were
    committed."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun", "watched"})

    def check(self, history: History) -> Finding:
        use = next(history.facts.of_kind(ApplicationUseEvent), None)
        if use is None:
            return Finding(Verdict.UNKNOWN, "it was not recorded how the application used its brokers")
        work = {process: fields["work"] for process, fields in use.processes.items() if fields.get("work")}
        numbers = _summed(work)
        # A program that neither gets messages nor commits them has said nothing of a message in its other lines.
        able = {name: of for name, of in work.items() if use.processes[name]["delivered"] or of["committed"]}
        unclear = sum(int(of["unread"]) + int(of["unmatched"]) for of in able.values())
        settled = sum(of["acknowledged"] + of["automatic"] for of in use.processes.values())
        coverage = Coverage(numbers["acknowledged"], settled, "deliveries")
        if not numbers["acknowledged"] or numbers["committed"] <= numbers["unmatched"]:
            return Finding(Verdict.UNKNOWN, _nothing(numbers), numbers, tuple(_unread(work)), coverage)
        lost = numbers["uncommitted"]
        if not lost:
            summary = (
                f"{counted(numbers['acknowledged'], 'delivery was', 'deliveries were')} acknowledged and committed"
            )
            if numbers["early"]:
                summary += f", {numbers['early']} of them in this order"
            return Finding(Verdict.VALID, summary, numbers, (), coverage)
        examples = tuple(_lost(history.facts))[:EXAMPLES_MAX]
        summary = f"{counted(lost, 'message was', 'messages were')} acknowledged, and never committed"
        if lost <= unclear:
            summary += f", and {counted(unclear, 'line')} of the program may have said so"
            return Finding(Verdict.UNKNOWN, summary, numbers, (*_unread(able), *examples)[:EXAMPLES_MAX], coverage)
        return Finding(Verdict.INVALID, f"{summary}; {examples[0]}", numbers, examples, coverage)


def _summed(work: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    names = ("acknowledged", "committed", "uncommitted", "early", "unmatched", "unread")
    total = Counter(dict.fromkeys(names, 0))
    for of in work.values():
        total.update({name: int(of[name]) for name in names})
    return dict(total)


def _nothing(numbers: Mapping[str, int]) -> str:
    """Return why nothing can be judged."""
    if not numbers["committed"] and not numbers["unread"]:
        text = "no process wrote what it committed (RABBITMQ_RESILIENCE_EVENTS in its environment names the file)"
        return f"{text}; on the wire, a program that acknowledges before its work looks like a fast one"
    if not numbers["committed"]:
        return f"{counted(numbers['unread'], 'line')} of the program say nothing of its work that can be read"
    if numbers["committed"] <= numbers["unmatched"]:
        return "what the program committed names no message that it got; write the message_id that its publisher set"
    return (
        "the program acknowledged no message that it has to commit: confirmed to its publisher, and with a message_id"
    )


def _unread(work: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    return (of["first_unread"] for of in work.values() if of["first_unread"])


def _lost(facts: Facts) -> Iterator[str]:
    ends = [event for event in facts.of_kind(ApplicationEvent) if event.event != "started"]
    for event in facts.of_kind(UncommittedEvent):
        text = f"{event.process} acknowledged a message of {event.queue} at {facts.at(event.t_us)}"
        end = next((end for end in ends if end.process == event.process and end.t_us >= event.t_us), None)
        fate = f", and {_ENDS.get(end.event, end.event)} at {facts.at(end.t_us)}" if end is not None else ""
        yield f"{text}, {facts.faults_during(event.t_us, event.t_us)}{fate}; its program never committed it"
