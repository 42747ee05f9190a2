"""Check that no process of the user's application ends by itself."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.events import ApplicationEvent

#: A look at the nodes that is older than this says nothing of a moment.
SEEN_BEFORE_S = 2.0


class StaysUp(InvariantSpec):
    """No process ends unless a step kills it, or it is asked to end. It is always judged for an application. For
    processes that are started again (``restarted``), ``ends_max`` may end in all. Processes that did not end when they
    were asked to are reported, not judged."""

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
        if len(ended) <= self.ends_max:
            summary = f"{counted(len(processes), 'process', 'processes')} ran on"
            summary += f", and {len(ended)} ends are allowed" if ended else ""
            return Finding(Verdict.VALID, "; ".join(filter(None, [summary, unasked])), numbers)
        examples = [
            f"{event.process} ended with status {event.status} at {facts.at(event.t_us)}, "
            f"{facts.faults_during(event.t_us, event.t_us)}{_not_up(facts, event.t_us)}: {_last_line(event.detail)}"
            for event in ended[:EXAMPLES_MAX]
        ]
        who = {event.process for event in ended}
        summary = f"{counted(len(who), 'process', 'processes')} ended by {'itself' if len(who) == 1 else 'themselves'}"
        summary += f", {len(ended)} times in all" if len(ended) > len(who) else ""
        summary += f"; {examples[0]}"
        return Finding(Verdict.INVALID, summary, numbers, tuple(examples))


def _not_up(facts: Facts, t_us: float) -> str:
    """Return in words which nodes did not serve at that moment: a killed one starts for a while after its step."""
    _, states = (facts.sightings(t_us - SEEN_BEFORE_S * 1e6, t_us) or [(0, {})])[-1]
    away = [node for node, state in sorted(states.items()) if state != "up"]
    return f", while {', '.join(away)} {'was' if len(away) == 1 else 'were'} not up" if away else ""


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it had written nothing"
