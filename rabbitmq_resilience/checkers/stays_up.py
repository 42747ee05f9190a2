"""Check that no process of the user's application ends by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.events import ApplicationEvent

#: A process that is started again is so after a second; it needs longer on a busy machine.
STARTED_AGAIN_WITHIN_S = 10.0
#: A look at the nodes that is older than this says nothing of a moment.
SEEN_BEFORE_S = 2.0


class StaysUp(InvariantSpec):
    """No process ends unless a step kills it, or it is asked to end. It is always judged for an application. For
    processes that are started again (``restarted``), ``ends_max`` may end in all; one that was not started again within
    10 s, before the drain, is INVALID. Processes that did not end when they were asked to are reported, not judged."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun", "watched"})

    ends_max: Annotated[int, Field(ge=0)] = 0

    def check(self, history: History) -> Finding:
        facts = history.facts
        events = list(facts.of_kind(ApplicationEvent))
        processes = {event.process for event in events if event.event == "started"}
        ended = [event for event in events if event.event == "ended"]
        hung = [event for event in events if event.event == "hung"]
        numbers = {"processes": len(processes), "ended": len(ended), "hung": len(hung)}
        if not processes:
            return Finding(Verdict.UNKNOWN, "no process of an application was recorded", numbers)
        unasked = "; ".join(f"{event.process} did not end when it was asked to" for event in hung)
        for_good = [event for event in ended if not _is_started_again(facts, event, events)]
        if len(ended) <= self.ends_max and not for_good:
            summary = f"of {counted(len(processes), 'process', 'processes')} none ended by itself"
            if ended:
                ends = counted(len(ended), "time")
                summary = f"processes ended {ends} by themselves and were started again; allowed are {self.ends_max}"
            return Finding(Verdict.VALID, "; ".join(filter(None, [summary, unasked])), numbers)
        examples = [
            f"{event.process} ended with status {event.status} at {facts.at(event.t_us)}"
            f"{', for good' if self.ends_max and event in for_good else ''}, "
            f"{facts.faults_during(event.t_us, event.t_us)}{_not_up(facts, event.t_us)}: {_last_line(event.detail)}"
            for event in sorted(ended, key=lambda event: event not in for_good)[:EXAMPLES_MAX]
        ]
        who = {event.process for event in ended}
        summary = f"{counted(len(who), 'process', 'processes')} ended by {'itself' if len(who) == 1 else 'themselves'}"
        summary += f", {len(ended)} times in all" if len(ended) > len(who) else ""
        summary += f"; {examples[0]}"
        return Finding(Verdict.INVALID, summary, numbers, tuple(examples))


def _is_started_again(facts: Facts, end: ApplicationEvent, events: Sequence[ApplicationEvent]) -> bool:
    """Return whether a process that ended was started again, or had no time for that before the drain."""
    due_us = end.t_us + STARTED_AGAIN_WITHIN_S * 1e6
    own_us = [event.t_us for event in events if event.event == "started" and event.process == end.process]
    in_time = any(end.t_us <= at_us <= due_us for at_us in own_us)
    return in_time or due_us > facts.phases.get("drain", facts.events[-1].t_us)


def _not_up(facts: Facts, t_us: float) -> str:
    """Return in words which nodes did not serve at that moment: a killed one starts for a while after its step."""
    _, states = (facts.sightings(t_us - SEEN_BEFORE_S * 1e6, t_us) or [(0, {})])[-1]
    away = [node for node, state in sorted(states.items()) if state != "up"]
    return f", while {', '.join(away)} {'was' if len(away) == 1 else 'were'} not up" if away else ""


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it had written nothing"
