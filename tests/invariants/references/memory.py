"""Judge the memory of nodes by looking at each value of each node."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
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
#: For how long a node that serves may say nothing.
SILENT_S = 15
Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Case:
    """What each node used of its watermark, second by second; None: it said nothing."""

    used: tuple[Values, ...]
    limits: tuple[Values, ...]
    alarms: tuple[Alarm, ...]
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    ratio_max: float
    bytes_max: int | None
    grace_s: float
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case in which nothing is within a second or two of a bound."""
    while True:
        case = _drawn(source)
        if not is_rough(case):
            return case


def _drawn(source: random.Random) -> Case:
    steps, aways = drawn_steps(source, ("kill", "pause", "partition", "kill_client"))
    aways = (*aways, *drawn_unseen(source))
    alarms = drawn_alarms(source)
    planted: set[str] = {f"alarm_{one.resource}" for one in alarms}
    planted |= {away.state for away in aways if away.state == "unseen"}
    every = [drawn_values(source, node, alarms, aways, planted) for node in NODES]
    every_used, every_limit = [used for used, _ in every], [limits for _, limits in every]
    bytes_max, grace_s = source.choice([None, None, 600, 1200]), source.choice([10.0, 10.0, 3.0, 30.0])
    ratio_max, names = source.choice([1.0, 1.0, 0.8, 2.0]), "+".join(sorted(planted)) or "nothing"
    return Case(tuple(every_used), tuple(every_limit), alarms, steps, aways, ratio_max, bytes_max, grace_s, names)


def drawn_values(
    source: random.Random, node: str, alarms: Sequence[Alarm], aways: Sequence[Away], planted: set[str]
) -> tuple[Values, Values]:
    """Draw what a node uses and what its watermark is."""
    values: list[float | None] = [source.choice([100.0, 400.0, 700.0])] * len(SECONDS)
    limits: list[float | None] = [1000.0] * len(SECONDS)
    for one in alarms:
        if one.node == node and source.random() < 0.8:
            how, end_s = source.choice(["use", "limit"]), one.end_s + source.choice([0, 2, 5, 20, 40])
            planted.add("over_in_alarm")
            for at_s in SECONDS:
                if one.start_s < at_s < end_s:
                    values[at_s], limits[at_s] = (1500.0, 1000.0) if how == "use" else (values[at_s], 0.0)
    if source.random() < 0.15:
        planted.add("over")
        start_s, level = source.randrange(0, 95), source.choice([900.0, 1000.0, 1500.0])
        for at_s in range(start_s, min(96, start_s + source.choice([1, 1, 5, 20]))):
            values[at_s] = level
    hide(source, node, aways, (values, limits), planted)
    return tuple(values), tuple(limits)


def hide(
    source: random.Random, node: str, aways: Sequence[Away], both: tuple[list[float | None], ...], planted: set[str]
) -> None:
    """Take away what a node says for some time, and while it is away."""
    values, limits = both
    if source.random() < 0.25:
        planted.add("silence")
        start_s, hidden = (
            source.choice([0, source.randrange(96), source.randrange(96)]),
            source.choice([values, limits]),
        )
        word = source.choice([None, None, math.nan]) if hidden is values else None
        for at_s in range(start_s, min(96, start_s + source.choice([2, 8, 20, 30, 90]))):
            hidden[at_s] = word
    for at_s in SECONDS:
        if is_seen_away(aways, node, at_s) or is_unseen(aways, node, at_s):
            values[at_s] = limits[at_s] = None


def recorded(case: Case) -> History:
    """Return the history of a case."""
    rows = []
    for node, used, limits in zip(NODES, case.used, case.limits, strict=True):
        rows += [told("memory_used", node, said(used)), told("memory_limit", node, said(limits))]
    history: History = made([], [], case.steps, case.aways, *alarm_events(case.alarms), metrics=rows)
    return history


def is_over(case: Case, number: int, at_s: int) -> bool | None:
    """Whether a node uses too much; None: it says nothing."""
    used, limits = case.used[number][at_s], case.limits[number]
    # A watermark holds until another one is said.
    words = [word for word in limits[: at_s + 1] if word is not None]
    limit = words[-1] if words else None
    if used is None or math.isnan(used):
        return None
    if case.bytes_max is not None and used >= case.bytes_max:
        return True
    return None if limit is None else used >= case.ratio_max * limit


def is_exempt(case: Case, node: str, at_s: float, later_s: float = 0) -> bool:
    """Whether a step raises the memory alarm of a node, or did so until shortly before."""
    for one in case.alarms:
        if (one.node, one.resource) == (node, "memory") and one.start_s <= at_s <= one.end_s + case.grace_s + later_s:
            return True
    return False


def verdict(case: Case, later_s: float = 0, silent_s: float = SILENT_S) -> str:
    """Return the verdict by the text: "No node uses more memory than its high watermark"."""
    answers = {verdict_of(case, number, later_s, silent_s) for number in range(len(NODES))}
    for answer in ("INVALID", "UNKNOWN"):
        if answer in answers:
            return answer
    return "VALID"


def verdict_of(case: Case, number: int, later_s: float, silent_s: float) -> str:
    """Return the verdict of one node."""
    node, states = NODES[number], [is_over(case, number, at_s) for at_s in SECONDS]
    if any(states[at_s] and not is_exempt(case, node, at_s, later_s) for at_s in SECONDS):
        return "INVALID"
    words = [state for state in states if state is not None]
    if not words or words[-1] or is_silent(case.aways, node, states, silent_s):
        return "UNKNOWN"
    return "VALID"


def is_rough(case: Case) -> bool:
    """Whether a second or two more or less make another verdict."""
    answers = {verdict(case, later_s, silent_s) for later_s in (-1.5, 0, 1.5) for silent_s in (12, 15, 18)}
    return len(answers) > 1 or any(END_S - 6 < away.to_s < END_S + 2 for away in case.aways)


def found(case: Case) -> str:
    """Return the checker's answer."""
    bounds = {"ratio_max": case.ratio_max, "grace_s": case.grace_s}
    if case.bytes_max is not None:
        bounds["bytes_max"] = case.bytes_max
    return str(checked("memory", recorded(case), **bounds).verdict)
