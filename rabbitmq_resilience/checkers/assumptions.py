"""Check the assumptions of a run: its invariants mean nothing if an assumption fails, so the verdict is UNKNOWN."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rabbitmq_resilience.checkers.application_connections import connections_of
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import UNWATCHED_S_MAX
from rabbitmq_resilience.checkers.message_ledger import ledger_of
from rabbitmq_resilience.checkers.observed_faults import ObservedFault
from rabbitmq_resilience.checkers.traffic import TICK_US
from rabbitmq_resilience.checkers.units import counted, seconds
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Finding, History, Number, Scope, Verdict
from rabbitmq_resilience.history.events import ENDED_EARLY, ApplicationUseEvent, DrainEvent, FaultEvent, NoteEvent


def _finding(problems: Sequence[str], good: str, **numbers: Number) -> Finding:
    if not problems:
        return Finding(Verdict.VALID, good, numbers)
    return Finding(Verdict.UNKNOWN, "; ".join(problems[:EXAMPLES_MAX]), numbers, tuple(problems[:EXAMPLES_MAX]))


@dataclass(frozen=True)
class FaultsProven:
    """Every step that began was injected, seen to act, healed, and seen to act no more. If operators have to mend
    splits, a step may be their repair: then every step had to begin."""

    scope: ClassVar[Scope] = "run"

    def check(self, history: History) -> Finding:
        facts = history.facts
        mended_by_steps = facts.cluster is not None and facts.cluster.splits and not facts.cluster.heals_splits
        begun = [step for step in facts.steps if mended_by_steps or not _never_began(step)]
        problems = [_described(facts, step, *_unproven(step)) for step in begun if any(_unproven(step))]
        return _finding(
            problems, f"{counted(len(begun), 'fault was', 'faults were')} proven, with the healing", faults=len(begun)
        )


@dataclass(frozen=True)
class FaultsBegun:
    """Every step of the schedule began. If one did not, INVALID stays INVALID, but VALID proves nothing: the missing
    step might have broken the promise.

    A step finds no target if an earlier step has left the cluster in pieces.
    """

    scope: ClassVar[Scope] = "invariants_and_valid"

    def check(self, history: History) -> Finding:
        facts = history.facts
        problems = [_described(facts, step, "skipped", "never began") for step in facts.steps if _never_began(step)]
        return _finding(problems, f"{counted(len(facts.steps), 'fault')} began", faults=len(facts.steps))


def _described(facts: Facts, step: ObservedFault, state: str, problem: str) -> str:
    """Return the step and its problem, with the last recorded detail of that state."""
    details = [e.detail for e in facts.of_kind(FaultEvent) if (e.step, e.state) == (step.number, state)]
    return f"{step} {problem}" + (f" ({details[-1]})" if details and details[-1] else "")


def _never_began(step: ObservedFault) -> bool:
    return set(step.states) == {"skipped"}


def _unproven(step: ObservedFault) -> tuple[str, str]:
    """Return the state that shows a problem and the problem in words; two empty texts if there is no problem."""
    if "unproven" in step.states or "proven" not in step.states:
        return "unproven", "was not seen to act"
    if "heal_unproven" in step.states or "heal_proven" not in step.states:
        return "heal_unproven", "was not seen to be healed"
    return "", ""


@dataclass(frozen=True)
class RunEnded:
    """The run was played to its end. A run that was broken off shows only a part, even if that was after its end phase
    began."""

    scope: ClassVar[Scope] = "run"

    def check(self, history: History) -> Finding:
        facts = history.facts
        notes = [event.detail for event in facts.of_kind(NoteEvent)]
        early = [note for note in notes if note.startswith(ENDED_EARLY)]
        reasons = early if "end" in facts.phases else notes or ["the run was broken off"]
        return _finding(reasons, "the run was played to its end")


@dataclass(frozen=True)
class LoadNotZero:
    """Messages were confirmed in the steady phase, and some were delivered. An application that never consumes is
    judged by what it publishes."""

    scope: ClassVar[Scope] = "run"

    def check(self, history: History) -> Finding:
        facts = history.facts
        ledger = ledger_of(history)
        if facts.publishing_us is None:
            return _finding(["the steady phase or the end of publishing was not recorded"], "")
        steady_us = facts.phases.get("chaos", facts.publishing_us[1]) - facts.publishing_us[0]
        ticks = -(-steady_us // TICK_US)
        confirmed = 0 if ledger.traffic is None else int(np.sum(ledger.traffic.messages[:ticks]))
        plain = any(use["plain"] for event in facts.of_kind(ApplicationUseEvent) for use in event.processes.values())
        problems = [] if confirmed or plain else ["nothing was confirmed in the steady phase"]
        problems += [] if ledger.read or _consumes_nothing(facts) else ["nothing was delivered"]
        good = f"{counted(confirmed, 'message was', 'messages were')} confirmed in the steady phase"
        return _finding(problems, good, confirmed_steady=confirmed, deliveries=ledger.deliveries)


def _consumes_nothing(facts: Facts) -> bool:
    """Return whether the load is an application of which no process ever had a consumer, or got a message."""
    uses = list(facts.of_kind(ApplicationUseEvent))
    got = any(use["delivered"] for event in uses for use in event.processes.values())
    return bool(uses) and not got and not any(connection.consumers for connection in connections_of(facts))


@dataclass(frozen=True)
class Watched:
    """The observer looked at all nodes all the time. If this machine stood still, its own stall would look like one of
    the brokers."""

    scope: ClassVar[Scope] = "invariants"

    def check(self, history: History) -> Finding:
        facts = history.facts
        if "steady" not in facts.phases or not facts.node_states:
            return _finding(["the nodes were not watched"], "")
        start_us, last_us = facts.phases["steady"], facts.events[-1].t_us
        end_us = facts.phases.get("end", facts.phases.get("drain", last_us))
        looks = [start_us, *(t for t in facts.all_looked_at_us if start_us < t < end_us), end_us]
        gap_us, at_us = max((b - a, a) for a, b in itertools.pairwise(looks))
        problem = f"the observer did not look at the nodes for {seconds(gap_us):g} s from {facts.at(at_us)} on"
        good = f"the nodes were looked at every {seconds(gap_us):g} s or oftener"
        return _finding([problem] if gap_us > UNWATCHED_S_MAX * 1e6 else [], good, unwatched_s=seconds(gap_us))


@dataclass(frozen=True)
class DrainComplete:
    """The consumers emptied the queues at the end. Messages that they did not receive by then will never come."""

    scope: ClassVar[Scope] = "invariants"

    def check(self, history: History) -> Finding:
        drains = list(history.facts.of_kind(DrainEvent))
        if not drains:
            return _finding(["the queues were not drained"], "")
        last = drains[-1]
        problem = f"the queues were not drained: {last.detail or 'no reason was recorded'}"
        return _finding([] if last.complete else [problem], "the queues were drained")
