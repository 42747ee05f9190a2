"""Judge outages by looking at what was due between each two confirms of a queue."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.checkers.verdict import History
from tests.invariants.literal import cluster, history, load, phases, queues
from tests.invariants.references.common import (
    OF_BROKERS,
    OF_CLIENTS,
    Away,
    Step,
    checked,
    drawn_steps,
    look_events,
    step_events,
)
from tests.invariants.references.served import Sent, client_events, sent_row

END_S, LEAST_S = 90.0, 1.0
#: No case is drawn whose verdict changes where the bounds are so much higher or lower.
ROUGH_S, ROUGH_RATIO = 1.3, 0.02
Answer = tuple[str, float]


@dataclass(frozen=True)
class Case:
    """A history of queues that get a message ``every_s``; ``pause_s``: when the load has a target of zero."""

    messages: tuple[Sent, ...]
    queues: int
    every_s: float
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    pause_s: tuple[float, float]
    outage_s_max: float | None
    ratio_min: float | None
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case whose verdict is not near the edge of a bound."""
    while True:
        case = _drawn(source)
        slacks = [(s, r) for s in (-ROUGH_S, 0.0, ROUGH_S) for r in (-ROUGH_RATIO, 0.0, ROUGH_RATIO)]
        lengths_s = [length for queue in range(case.queues) for length in outages(case, queue)[0]]
        is_rough = any(abs(length - LEAST_S) < 0.1 for length in lengths_s)
        if not is_rough and len({judged(case, slack_s, ratio) for slack_s, ratio in slacks}) == 1:
            return case


def _drawn(source: random.Random) -> Case:
    steps, aways = drawn_steps(source, OF_BROKERS + OF_CLIENTS)
    count, every_s, planted = source.choice([1, 2]), source.choice([0.5, 0.5, 0.5, 2.0]), set()
    pause_s = (0.0, 0.0)
    if source.random() < 0.15:
        from_s = float(source.randrange(12, 60))
        pause_s = (from_s, from_s + source.choice([5, 20, 30]))
        planted.add("load_pauses")
    troubles = []
    for _ in range(source.choice([0, 1, 1, 2, 3])):
        from_s, kind = (
            float(source.randrange(0, 88)),
            source.choice(["unsent", "unknown", "nacked", "returned", "late"]),
        )
        troubles.append((source.randrange(count), from_s, from_s + source.choice([3, 5, 8, 14, 25, 40]), kind))
        planted.add(kind)
    messages = []
    for queue in range(count):
        at_s, sequence = queue / 8, 0
        while at_s < END_S - 0.1:
            kind, until_s = "", 0.0
            for one, from_s, to_s, what in troubles:
                if one == queue and from_s <= at_s < to_s:
                    kind, until_s = what, to_s
            if kind != "unsent" and not pause_s[0] <= at_s < pause_s[1]:
                outcome = {"": "confirmed", "late": "confirmed"}.get(kind, kind)
                waited_s = until_s - at_s - 0.3 if kind == "late" else 0.005
                if at_s + waited_s > END_S + 3:
                    outcome, waited_s = "unknown", 5.0
                messages.append(Sent(queue, sequence, at_s, outcome, waited_s))
                sequence += 1
            at_s += every_s
    outage_s_max, ratio_min = source.choice([(None, 0.9), (6.0, None), (10.0, None), (20.0, 0.8), (None, 0.7)])
    names = "+".join(sorted(planted)) or "nothing"
    return Case(tuple(messages), count, every_s, steps, aways, pause_s, outage_s_max, ratio_min, names)


def recorded(case: Case) -> History:
    """Return the history of a case."""
    rate, (from_s, to_s) = case.queues / case.every_s, case.pause_s
    parts = [(rate, from_s - 10), (0, to_s - from_s)] if to_s else []
    events = [cluster(), queues(*(f"q{number + 1}" for number in range(case.queues))), phases()]
    events += [load(10, rate, *parts), *step_events(case.steps), *look_events(case.aways)]
    events += client_events((), case.queues)
    return history([sent_row(one) for one in case.messages], [], events)


def verdict(case: Case) -> Answer:
    """Return the verdict by the text, and the longest outage to half a second."""
    longest_s = max(length for queue in range(case.queues) for length in [0.0, *outages(case, queue)[0]])
    return judged(case, 0.0, 0.0), round(2 * longest_s - 0.2) / 2


def judged(case: Case, slack_s: float, slack: float) -> str:
    """Return the verdict with bounds that are higher by something."""
    answers = set()
    for queue in range(case.queues):
        known, hidden = outages(case, queue)
        if _is_broken(case, known, slack_s, slack):
            answers.add("INVALID")
        elif _is_broken(case, hidden, slack_s, slack):
            answers.add("UNKNOWN")
    return "INVALID" if "INVALID" in answers else "UNKNOWN" if "UNKNOWN" in answers else "VALID"


def _is_broken(case: Case, lengths_s: list[float], slack_s: float, slack: float) -> bool:
    """Whether outages of these lengths are more than the bounds allow."""
    if case.outage_s_max is not None and any(length > case.outage_s_max + slack_s for length in lengths_s):
        return True
    return case.ratio_min is not None and 1 - sum(lengths_s) / END_S < case.ratio_min + slack


def outages(case: Case, queue: int) -> tuple[list[float], list[float]]:
    """Return the lengths of the outages of a queue, and what they may have been where no one tried to publish."""
    mine = [one for one in case.messages if one.queue == queue]
    ends = sorted({min(one.due_s + one.waited_s, END_S) for one in mine if one.outcome == "confirmed"})
    known, hidden = [], []
    for before_s, after_s in zip([0.0, *ends], [*ends, END_S], strict=True):
        # One that waited at the last confirm already was due before; the outage that this ended is over.
        due = [max(one.due_s, before_s) for one in mine if one.due_s < after_s and before_s < one.due_s + one.waited_s]
        first_s = min(due, default=after_s)
        if after_s - first_s >= LEAST_S:
            known.append(after_s - first_s)
        # "The load's own pauses hide none."
        idle_s, at_s = 0.0, before_s
        while at_s < first_s:
            idle_s += 0.0 if case.pause_s[0] <= at_s < case.pause_s[1] else 0.25
            at_s += 0.25
        may_s = (after_s - first_s) + (idle_s if idle_s > LEAST_S else 0.0)
        if may_s >= LEAST_S:
            hidden.append(may_s)
    return known, hidden


def finding(case: Case) -> Any:
    """Return the whole finding."""
    bounds = {"outage_s_max": case.outage_s_max, "ratio_min": case.ratio_min}
    return checked("uptime", recorded(case), **{name: bound for name, bound in bounds.items() if bound is not None})


def found(case: Case) -> Answer:
    """Return the checker's answer."""
    one = finding(case)
    return str(one.verdict), round(2 * one.numbers.get("outage_s", 0) - 0.2) / 2
