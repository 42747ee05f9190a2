"""Judge the rate of confirms by looking at each window that begins at a half second."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rabbitmq_resilience.checkers.verdict import History
from tests.invariants.literal import cluster, history, load, phases, publish, queues
from tests.invariants.references.common import (
    NODES,
    OUTCOMES,
    Away,
    Machine,
    Step,
    checked,
    look_events,
    machine_events,
    step_events,
)
from tests.invariants.references.served import client_events, has_majority, is_of, may_have_paused

STEADY_S, END_S, WINDOW_S, RATIO, LOST_S, RATE = 10.0, 90.0, 5.0, 0.5, 20.0, 10
#: No case is drawn whose verdict changes where times are so much longer or shorter, or the ratio by a tenth.
ROUGH_S = 1.25


@dataclass(frozen=True)
class Case:
    """A history. ``rates``: the part of the target that was confirmed from a second to another; ``loads``: the parts of
    the first target from 10 s on; ``unconfirmed``: what became of the others."""

    rates: tuple[tuple[float, float, float], ...]
    unconfirmed: str
    loads: tuple[tuple[float, float], ...]
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    grace_s: float
    machine: tuple[Machine, ...]
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case whose verdict is not near the edge of a bound."""
    while True:
        case = _drawn(source)
        verdicts = {
            judged(case, s, t, r) for s in (-ROUGH_S, 0.0, ROUGH_S) for t in (True, False) for r in (0.45, 0.55)
        }
        if len(verdicts) == 1 and not may_have_paused(case.steps, case.aways):
            return case


def _drawn(source: random.Random) -> Case:
    steps, aways, planted = [], [], set()
    at_s = float(source.randrange(11, 30))
    for _ in range(source.choice([0, 1, 1, 2, 3])):
        name = source.choice(["kill", "kill", "pause", "partition", "alarm", "kill_client"])
        node, end_s = source.choice(NODES), at_s + source.choice([2, 5, 10, 30])
        if end_s > 69:
            break
        steps.append(Step(name, at_s, end_s, node))
        planted.add(name)
        state = {"kill": "down", "pause": "suspended", "partition": "paused"}.get(name, "")
        if state and (name != "partition" or end_s - at_s >= 10):
            begins_s = at_s + (5.5 if name == "partition" else 0)
            aways.append(Away(node, begins_s, end_s + source.choice([2, 2, 5, 12]), state))
        at_s = source.choice([at_s, end_s + 1, end_s + 6, end_s + 20])
    if source.random() < 0.1:
        from_s = float(source.randrange(12, 75))
        aways.append(Away(source.choice(NODES), from_s, from_s + source.choice([4, 15]), "down"))
        planted.add("away_by_itself")
    loads: tuple[tuple[float, float], ...] = ()
    if source.random() < 0.25:
        loads = tuple((source.choice([0.0, 0.2, 0.5, 1.0]), source.choice([10.0, 20.0])) for _ in range(3))
        planted.add("load_varies")
    rates = []
    for _ in range(source.choice([0, 0, 1, 1, 2])):
        from_s, part = float(source.randrange(10, 88)), source.choice([0.0, 0.2, 0.2, 0.7])
        if steps and source.random() < 0.5:
            from_s = source.choice(steps).start_s
        rates.append((from_s, from_s + source.choice([2, 5, 10, 15, 20, 30, 60]), part))
        planted.add(f"part {part}")
    if source.random() < 0.05:
        rates.append((0.0, STEADY_S, 0.4))
        planted.add("steady_short")
    machine: tuple[Machine, ...] = ()
    if source.random() < 0.15:
        machine = (Machine(source.choice([0.0, 50.0]), 95.0, 0.6, "a1", 0.0),)
        planted.add("others")
    unconfirmed, grace_s = source.choice(["unsent", "unknown", "nacked"]), source.choice([15.0, 15.0, 5.0])
    names = "+".join(sorted(planted)) or "nothing"
    return Case(tuple(rates), unconfirmed, loads, tuple(steps), tuple(aways), grace_s, machine, names)


def target(case: Case, at_s: float) -> float:
    """Return the load's target at a moment, as a part of the first one."""
    from_s = STEADY_S
    for part, for_s in case.loads:
        if from_s <= at_s < from_s + for_s:
            return part
        from_s += for_s
    return 1.0


def part_of(case: Case, at_s: float) -> float:
    """Return which part of what was due then is confirmed."""
    return min([part for from_s, to_s, part in case.rates if from_s <= at_s < to_s], default=1.0)


def confirmed(case: Case) -> list[tuple[float, bool]]:
    """Return when each message was due, and whether it was confirmed: evenly in each second."""
    messages = []
    for second in range(int(END_S)):
        due, sure = round(RATE * target(case, second)), round(RATE * target(case, second) * part_of(case, second))
        for number in range(due):
            messages.append((second + number / max(due, 1), number * sure // due != (number + 1) * sure // due))
    return messages


def recorded(case: Case) -> History:
    """Return the history of a case."""
    rows: list[Any] = []
    for at_s, is_sure in confirmed(case):
        outcome = "confirmed" if is_sure else case.unconfirmed
        if outcome != "unsent":
            rows.append(publish(len(rows), at_s, OUTCOMES[outcome]))
    parts = [(RATE * part, for_s) for part, for_s in case.loads]
    events = [cluster(), queues("q1"), phases(), load(STEADY_S, RATE, *parts)]
    events += [*step_events([s for s in case.steps if s.name != "alarm"]), *look_events(case.aways)]
    events += client_events(case.steps, 1)
    return history(rows, [], [*events, *machine_events(case.machine)])


def back_s(case: Case, away: Away) -> float:
    """Return when a node was seen up again after it was away."""
    end_s = away.to_s
    for one in sorted(case.aways, key=lambda one: one.from_s):
        if one.node == away.node and one.from_s <= end_s < one.to_s:
            end_s = one.to_s
    return end_s


def is_away_before(case: Case, step: Step) -> bool:
    """Whether another step had taken a step's node away, and it was not seen up since."""
    for other in case.steps:
        is_earlier = other.on_brokers and other.node == step.node and other.start_s < step.start_s
        backs_s = [back_s(case, one) for one in case.aways if is_of(other, one)]
        if is_earlier and "partition" not in (step.name, other.name) and max(backs_s, default=0.0) > step.start_s:
            return True
    return False


def is_demanded(case: Case, at_s: float, slack_s: float) -> bool:
    """Whether the rate is demanded at a moment."""
    grace_s, lost_s = case.grace_s + slack_s, LOST_S + slack_s
    not_in: list[tuple[float, float]] = []
    for step in case.steps:
        not_in.append((step.start_s - max(0.0, slack_s), step.start_s))  # a look may have been the last before it
        if not step.on_brokers:
            not_in.append((step.start_s, step.end_s + grace_s))
            continue
        # What was lost with the step is back when it was seen, and else when the step ends.
        backs_s = [back_s(case, one) for one in case.aways if is_of(step, one)]
        if not is_away_before(case, step):
            not_in.append((step.start_s, step.start_s + grace_s))
            not_in.append((step.start_s, min(step.start_s + lost_s, max([step.end_s, *backs_s]))))
        changes_s = backs_s if backs_s and step.name != "partition" else [step.end_s, *backs_s]
        not_in += [(at_s, at_s + grace_s) for at_s in changes_s]
    if any(from_s <= at_s < to_s for from_s, to_s in not_in):
        return False
    return has_majority(case.steps, case.aways, at_s) and target(case, at_s) > 0


@lru_cache(maxsize=4)
def demanded_at(case: Case, slack_s: float) -> list[bool]:
    """Return for each quarter of a second whether the rate is demanded."""
    return [is_demanded(case, quarter / 4, slack_s) for quarter in range(int(4 * END_S))]


def verdict(case: Case) -> str:
    """Return the verdict by the text."""
    return judged(case, 0.0, True, RATIO)


def judged(case: Case, slack_s: float, slides: bool, ratio: float) -> str:
    """Return the verdict where times are longer by something; ``slides``: windows begin at each half second, not one
    after another."""
    times_s = [at_s + 0.005 for at_s, is_sure in confirmed(case) if is_sure]
    mean = sum(at_s < STEADY_S for at_s in times_s) / STEADY_S
    if mean < 0.8 * RATE:
        return "UNKNOWN"
    windows = []
    demanded = demanded_at(case, slack_s)
    at_s = STEADY_S
    while at_s + WINDOW_S <= END_S:
        if all(demanded[int(4 * at_s) : int(4 * (at_s + WINDOW_S))]):
            windows.append(at_s)
            at_s += 0.5 if slides else WINDOW_S
        else:
            at_s += 0.5
    short = [at_s for at_s in windows if _is_short(case, times_s, at_s, mean * ratio)]
    if any(not _is_taken(case, at_s) for at_s in short):
        return "INVALID"
    if short or not windows:
        return "UNKNOWN"
    healed_s = max([step.end_s for step in case.steps], default=0.0)
    if not any(at_s >= healed_s for at_s in windows) and _is_short(case, times_s, END_S - WINDOW_S, mean * ratio):
        return "UNKNOWN"
    return "VALID"


def _is_short(case: Case, times_s: list[float], from_s: float, least: float) -> bool:
    """Whether fewer were confirmed in a window than must be: "of less, in proportion, where the target sinks"."""
    part = sum(target(case, from_s + half / 2) for half in range(int(2 * WINDOW_S))) / (2 * WINDOW_S)
    return bisect_left(times_s, from_s + WINDOW_S) - bisect_left(times_s, from_s) < least * WINDOW_S * part


def _is_taken(case: Case, from_s: float) -> bool:
    """Whether other programs took much of the machine in a window."""
    return any(one.from_s < from_s + WINDOW_S and from_s < one.to_s for one in case.machine)


def finding(case: Case) -> Any:
    """Return the whole finding."""
    return checked("throughput", recorded(case), grace_s=case.grace_s)


def found(case: Case) -> str:
    """Return the checker's answer."""
    return str(finding(case).verdict)
