"""Judge how long queues confirm nothing by looking at each quarter of a second."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.checkers.verdict import History
from tests.invariants.literal import cluster as cluster_event
from tests.invariants.literal import deliver, history, load, phases, queues
from tests.invariants.references.common import (
    NODES,
    Away,
    Machine,
    Step,
    checked,
    look_events,
    machine_events,
    step_events,
)
from tests.invariants.references.served import (
    Sent,
    client_events,
    has_majority,
    may_have_paused,
    overlapping_steps,
    sent_row,
    together,
)

#: The bound (1.25 times net_ticktime and 15 s), the grace, when publishing ends, and how finely it is looked at.
STALL_S, GRACE_S, END_S, FINE_S = 20.0, 15.0, 90.0, 0.25
#: No case is drawn whose verdict changes where the bound, or the time of an excuse, is so much longer or shorter.
ROUGH_S = 1.25


@dataclass(frozen=True)
class Case:
    """A history of queues that get a message ``every_s``; ``pause_s``: when the load has a target of zero."""

    messages: tuple[Sent, ...]
    queues: int
    every_s: float
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    pause_s: tuple[float, float]
    machine: tuple[Machine, ...]
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case whose verdict is not near the edge of a bound."""
    while True:
        case = _drawn(source)
        if len({judged(case, slack_s) for slack_s in (-ROUGH_S, 0.0, ROUGH_S)}) == 1 and not is_rough(case):
            return case


def is_rough(case: Case) -> bool:
    """Whether a node was back just when another one went, one that went by itself may have paused, one that was taken
    away was never seen to be, or a confirm came just when a step began."""
    if "never_away" in case.planted:
        return True
    for away in case.aways:
        if any(step.on_brokers and abs(away.to_s - step.start_s) < 0.6 for step in case.steps):
            return True
    late_s = [one.due_s + one.waited_s for one in case.messages if one.outcome == "confirmed" and one.waited_s > 1]
    if any(abs(at_s - step.start_s) < 0.6 for at_s in late_s for step in case.steps):
        return True
    return may_have_paused(case.steps, case.aways)


def _drawn(source: random.Random) -> Case:
    steps, aways, planted = overlapping_steps(source)
    queues, every_s = source.choice([1, 2]), source.choice([0.5, 0.5, 0.5, 5.0, 25.0])
    pause_s = (0.0, 0.0)
    if source.random() < 0.1:
        from_s = float(source.randrange(12, 50))
        pause_s = (from_s, from_s + source.choice([5, 20, 30]))
        planted.add("load_pauses")
    silences = []
    for _ in range(source.choice([0, 1, 1, 2])):
        from_s = float(source.randrange(0, 88))
        if steps and source.random() < 0.6:
            step = source.choice(steps)
            from_s = source.choice([step.start_s, step.start_s, step.end_s, step.end_s + 4])
        to_s = from_s + source.choice([4, 10, 15, 18, 22, 22, 25, 30, 36, 45, 60, 90])
        silences.append(
            (source.randrange(queues), from_s, to_s, source.choice(["unsent", "unknown", "nacked", "late"]))
        )
    messages = []
    for queue in range(queues):
        mine = [(from_s, to_s, kind) for one, from_s, to_s, kind in silences if one == queue]
        dead = [(one.start_s, one.end_s) for one in steps if one.name == "kill_client"]
        messages += _drawn_messages(queue, every_s, mine, dead, pause_s)
    machine: tuple[Machine, ...] = ()
    if source.random() < 0.25:
        others, waited = source.choice([(0.6, 0.0), (0.0, 0.1), (0.0, 0.3), (0.0, 0.6), (0.0, 0.0)])
        machine = (Machine(0.0, 95.0, others, source.choice(NODES), waited),)
        planted.add(f"others {others} waited {waited}")
    planted |= {f"{kind} for {'more' if to_s - from_s > STALL_S else 'less'}" for _, from_s, to_s, kind in silences}
    planted.add(f"every {every_s:g} s")
    names = "+".join(sorted(planted))
    return Case(tuple(messages), queues, every_s, steps, aways, pause_s, machine, names)


def _drawn_messages(
    queue: int,
    every_s: float,
    silences: list[tuple[float, float, str]],
    dead: list[tuple[float, float]],
    pause_s: tuple[float, float],
) -> list[Sent]:
    """Return the messages of a queue; those of a seldom used queue are tried in all its silences."""
    messages: list[Sent] = []
    at_s = queue / 8 - every_s
    while (at_s := _after(at_s, every_s, pause_s)) < END_S - 0.1:
        kind, until_s = "", 0.0
        for from_s, to_s, one in silences:
            if from_s <= at_s < to_s:
                kind, until_s = one, to_s
        if any(from_s <= at_s < to_s for from_s, to_s in dead) or (kind == "unsent" and every_s < 1):
            continue
        if kind == "late" and until_s <= END_S + 2:
            messages.append(Sent(queue, len(messages), at_s, "confirmed", until_s - at_s))
        elif kind:
            messages.append(Sent(queue, len(messages), at_s, "nacked" if kind == "nacked" else "unknown", 1.0))
        else:
            messages.append(Sent(queue, len(messages), at_s, "confirmed"))
    return messages


def _after(at_s: float, every_s: float, pause_s: tuple[float, float]) -> float:
    """Return when the next message is due; no time passes for the load while it pauses."""
    next_s = at_s + every_s
    return next_s + pause_s[1] - pause_s[0] if at_s < pause_s[0] <= next_s else next_s


def recorded(case: Case) -> History:
    """Return the history of a case."""
    rows, received = [], []
    for one in case.messages:
        rows.append(sent_row(one))
        if one.outcome == "confirmed":
            at_s = one.due_s + one.waited_s + 0.1
            received.append(deliver(one.sequence, at_s, publisher=one.queue, queue=one.queue, consumer=one.queue))
    names = [f"q{number + 1}" for number in range(case.queues)]
    rate = case.queues / case.every_s
    parts = [(rate, case.pause_s[0] - 10), (0, case.pause_s[1] - case.pause_s[0])] if case.pause_s[1] else []
    events = [cluster_event(), queues(*names), phases(), load(10, rate, *parts)]
    events += step_events([step for step in case.steps if step.name != "alarm"])
    events += [*look_events(case.aways), *client_events(case.steps, case.queues)]
    events += machine_events(case.machine)
    return history(rows, received, events)


def verdict(case: Case) -> str:
    """Return the verdict by the text."""
    return judged(case, 0.0)


def judged(case: Case, slack_s: float) -> str:
    """Return the verdict where excuses, and the bound, are longer by some time."""
    verdicts = [_of_queue(case, queue, slack_s) for queue in range(case.queues)]
    return "INVALID" if "INVALID" in verdicts else "UNKNOWN" if "UNKNOWN" in verdicts else "VALID"


def _of_queue(case: Case, queue: int, slack_s: float) -> str:
    mine = [one for one in case.messages if one.queue == queue]
    confirms = sorted(one.due_s + one.waited_s for one in mine if one.outcome == "confirmed")
    may = may_stand_still(case, slack_s)
    answers = {"VALID"}
    end_s = max([END_S, *confirms])
    for before_s, after_s in zip([0.0, *confirms], [*confirms, end_s], strict=True):
        from_s = _next_due(case, mine, before_s)
        is_ended = after_s in confirms
        counted_s = 0.0
        at_s = before_s
        while at_s < after_s:
            if any(start_s <= at_s < stop_s for start_s, stop_s in may):
                counted_s = 0.0
                from_s = _next_due(case, mine, at_s + FINE_S)
            elif at_s >= from_s and not case.pause_s[0] <= at_s < case.pause_s[1]:
                counted_s += min(FINE_S, after_s - at_s)
                if counted_s > STALL_S + slack_s:
                    until_s = _end_of_stall(may, at_s, after_s)
                    came = is_ended and until_s == after_s
                    paused_s = max(0.0, min(until_s, case.pause_s[1]) - max(at_s, case.pause_s[0]))
                    answers.add(_too_long(case, until_s - at_s + counted_s - paused_s, came, slack_s))
            at_s += FINE_S
        if not is_ended and after_s - _next_due(case, mine, before_s) > _usual_s(case, confirms):
            answers.add("UNKNOWN")
    healed_s = max([step.end_s for step in case.steps], default=0.0)
    if not any(at_s > healed_s for at_s in confirms):
        answers.add("UNKNOWN")
    if any(not _is_seen(case, mine, one[1], other[0]) for one, other in itertools.pairwise([(0.0, 0.0), *may])):
        answers.add("UNKNOWN")
    return "INVALID" if "INVALID" in answers else "UNKNOWN" if "UNKNOWN" in answers else "VALID"


def _usual_s(case: Case, confirms: list[float]) -> float:
    """Return for how long a queue is silent at times: twice as long as in the steady phase, and a second at least."""
    steady = [at_s for at_s in confirms if at_s <= 10]
    gaps = [after_s - before_s for before_s, after_s in itertools.pairwise(steady)]
    return max([1.0, *(2 * gap_s for gap_s in gaps if case.every_s < 1)])


def _is_seen(case: Case, mine: list[Sent], from_s: float, to_s: float) -> bool:
    """Whether a queue confirmed something in a stretch that ends where it may stand still."""
    confirms = [one.due_s + one.waited_s for one in mine if one.outcome == "confirmed"]
    is_tried = case.every_s < 1 or any(one.due_s < to_s and from_s < one.due_s + one.waited_s for one in mine)
    paused_s = max(0.0, min(to_s, case.pause_s[1]) - max(from_s, case.pause_s[0]))
    return not is_tried or to_s - from_s - paused_s <= 0.5 or any(from_s <= at_s < to_s for at_s in confirms)


def _next_due(case: Case, mine: list[Sent], at_s: float) -> float:
    """Return when a stall begins after a moment: of a seldom used queue "when the next one was due"."""
    if case.every_s < 1:
        return at_s
    return min([max(one.due_s, at_s) for one in mine if one.due_s + one.waited_s > at_s + 0.1], default=END_S + 9)


def _end_of_stall(may: list[tuple[float, float]], at_s: float, after_s: float) -> float:
    """Return when a stall ends that is on: by a confirm, or where the queue may stand still."""
    return min([start_s for start_s, _ in may if start_s > at_s] + [after_s])


def _too_long(case: Case, long_s: float, is_ended: bool, slack_s: float) -> str:
    """Return what a stall is that is too long: the machine excuses it where it is not twice as long."""
    for part in case.machine:
        if long_s >= 2 * (STALL_S + slack_s):
            continue
        if part.waited >= 0.5 and not is_ended:
            return "UNKNOWN"
        if is_ended and (part.others >= 0.25 or long_s * (1 - part.waited) <= STALL_S + 2 * slack_s):
            return "UNKNOWN"
    return "INVALID"


def may_stand_still(case: Case, slack_s: float) -> list[tuple[float, float]]:
    """Return the times in which queues may stand still, with the grace after each; those that touch are one."""
    times: list[tuple[float, float]] = []
    at_s, is_on, start_s = 0.0, False, 0.0
    while at_s <= 100:
        if excuse(case, at_s) != is_on:
            is_on = not is_on
            if is_on:
                start_s = at_s
            else:
                times.append((start_s, at_s + GRACE_S + slack_s))
        at_s += FINE_S
    return together(times)


def excuse(case: Case, at_s: float) -> bool:
    """Whether a queue with a copy on each node has no majority, an alarm is on, or all publishers are killed."""
    on = [step for step in case.steps if step.start_s <= at_s < step.end_s]
    if any(step.name in ("alarm", "kill_client") for step in on):
        return True
    return not has_majority(case.steps, case.aways, at_s)


def finding(case: Case) -> Any:
    """Return the whole finding."""
    return checked("availability", recorded(case))


def found(case: Case) -> str:
    """Return the checker's answer."""
    return str(finding(case).verdict)
