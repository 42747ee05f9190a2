"""Judge alarms by looking at each node's word on each resource, second by second."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rabbitmq_resilience.checkers.verdict import History
from tests.invariants.literal import told
from tests.invariants.references.common import (
    END_S,
    NODES,
    Alarm,
    Away,
    Step,
    alarm_events,
    checked,
    drawn_alarms,
    drawn_steps,
    drawn_unseen,
    is_seen_away,
    is_silent,
    is_unseen,
    made,
    said,
)

SECONDS = range(int(END_S) + 1)
RESOURCES = ("memory", "disk")
#: For how long a node that serves may say nothing.
SILENT_S = 15
Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Word:
    """What a node said of an alarm, second by second: 1 where it is raised; None: nothing."""

    node: str
    resource: str
    values: Values


@dataclass(frozen=True)
class Case:
    """What nodes said of their alarms."""

    words: tuple[Word, ...]
    alarms: tuple[Alarm, ...]
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    raised_s: float
    cleared_s: float
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case in which nothing is within a second or two of a bound."""
    while True:
        case = _drawn(source)
        if not is_rough(case):
            return case


def _drawn(source: random.Random) -> Case:
    steps, aways = drawn_steps(source, ("kill", "pause", "partition", "kill_client"))
    alarms, planted, words = drawn_alarms(source), set[str](), []
    aways = (*aways, *drawn_unseen(source))
    planted |= {away.state for away in aways if away.state == "unseen"}
    for node in NODES:
        silent_s = (0, 0)
        if source.random() < 0.15:
            planted.add("silence")
            start_s = source.randrange(96)
            silent_s = (start_s, start_s + source.choice([2, 8, 20, 30, 90]))
        for resource in RESOURCES:
            values: list[float | None] = [0.0] * len(SECONDS)
            for one in alarms:
                if (one.node, one.resource) == (node, resource):
                    _raise(source, one, values, planted)
            if source.random() < 0.03:
                planted.add("other")
                start_s = source.randrange(0, 95)
                for at_s in range(start_s, min(96, start_s + source.choice([1, 1, 5, 20]))):
                    values[at_s] = 1.0
            for at_s in SECONDS:
                hidden = is_seen_away(aways, node, at_s) or is_unseen(aways, node, at_s)
                if hidden or silent_s[0] <= at_s < silent_s[1]:
                    values[at_s] = None
            words.append(Word(node, resource, tuple(values)))
    raised_s, cleared_s = source.choice([15.0, 15.0, 4.0, 8.0]), source.choice([15.0, 15.0, 4.0, 40.0])
    names = "+".join(sorted(planted)) or "nothing"
    return Case(tuple(words), alarms, steps, aways, raised_s, cleared_s, names)


def _raise(source: random.Random, one: Alarm, values: list[float | None], planted: set[str]) -> None:
    """Draw when the alarm of a step is seen."""
    how = source.choice(["well", "well", "well", "never", "late", "stays", "to_the_end", "other_time"])
    planted.add(how)
    start_s, end_s = one.start_s + source.choice([0.5, 2.5]), one.end_s + source.choice([0.5, 2.5])
    if how == "never":
        return
    if how == "late":
        start_s = one.start_s + source.choice([6.5, 10.5, 18.5])
    if how in ("stays", "to_the_end"):
        end_s = END_S + 1 if how == "to_the_end" else one.end_s + source.choice([6.5, 10.5, 20.5])
    if how == "other_time":
        start_s -= source.choice([3, 10])
    for at_s in SECONDS:
        if start_s <= at_s < end_s:
            values[at_s] = 1.0


def recorded(case: Case) -> History:
    """Return the history of a case."""
    rows = [told(f"alarm_{word.resource}", word.node, said(word.values)) for word in case.words]
    history: History = made([], [], case.steps, case.aways, *alarm_events(case.alarms), metrics=rows)
    return history


def verdict(case: Case, later_s: float = 0, silent_s: float = SILENT_S) -> str:
    """Return the verdict by the text: "Alarms are raised when, and only when, something raises them"."""
    answers = {verdict_of(case, word, later_s, silent_s) for word in case.words}
    for answer in ("INVALID", "UNKNOWN"):
        if answer in answers:
            return answer
    return "VALID"


def verdict_of(case: Case, word: Word, later_s: float, silent_s: float) -> str:
    """Return the verdict of one node and resource."""
    mine = [one for one in case.alarms if (one.node, one.resource) == (word.node, word.resource)]
    answers = {_raised(word, one, case.raised_s + later_s) for one in mine}
    for at_s in SECONDS:
        allowed = [one for one in mine if one.start_s <= at_s <= one.end_s + case.cleared_s + later_s]
        if word.values[at_s] and not allowed:
            answers.add("INVALID")
    words = [value for value in word.values if value is not None]
    # It may have the time, and did not clear before the node spoke for the last time.
    if not words or words[-1] or is_silent(case.aways, word.node, word.values, silent_s):
        answers.add("UNKNOWN")
    return "INVALID" if "INVALID" in answers else "UNKNOWN" if "UNKNOWN" in answers else "VALID"


def _raised(word: Word, one: Alarm, within_s: float) -> str:
    """Return whether the alarm of a step was seen in time; UNKNOWN where it was not seen when it was due."""
    due_s = one.start_s + within_s
    if any(word.values[at_s] for at_s in SECONDS if one.start_s <= at_s <= due_s):
        return "VALID"
    after = [word.values[at_s] for at_s in SECONDS if due_s <= at_s <= one.end_s]
    after = [value for value in after if value is not None]
    return "INVALID" if after and not after[0] else "UNKNOWN"


def is_rough(case: Case) -> bool:
    """Whether a second or two more or less make another verdict, or a step is healed before its alarm is due."""
    answers = {verdict(case, later_s, silent_s) for later_s in (-1.5, 0, 1.5) for silent_s in (12, 15, 18)}
    if len(answers) > 1 or any(END_S - 6 < away.to_s < END_S + 2 for away in case.aways):
        return True
    return any(one.end_s - one.start_s < case.raised_s + 2 for one in case.alarms)


def found(case: Case) -> str:
    """Return the checker's answer."""
    bounds = {"raised_within_s": case.raised_s, "cleared_within_s": case.cleared_s}
    return str(checked("alarms", recorded(case), **bounds).verdict)
