"""Hold what references have in common that judge how a cluster serves: messages, steps at the same time, who is up."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.invariants.literal import apart, event, fault, publish
from tests.invariants.references.common import NODES, OUTCOMES, Away, Step

#: A node notices no cut sooner than that (0.75 times net_ticktime), and has seen by then that another one is back (1.25
#: times net_ticktime, and what pausing takes).
CUT_NOTICED_S, BACK_NOTICED_S = 3.75, 18.0


@dataclass(frozen=True)
class Sent:
    """A publish of publisher ``queue`` to that queue. ``waited_s``: for how long it had no answer."""

    queue: int
    sequence: int
    due_s: float
    outcome: str
    waited_s: float = 0.005


def sent_row(one: Sent) -> dict[str, Any]:
    """Return the row of a publish."""
    row = publish(one.sequence, one.due_s, OUTCOMES[one.outcome], publisher=one.queue, queue=one.queue)
    row["outcome_us"] = row["sent_us"] + round(one.waited_s * 1e6)
    return row


def overlapping_steps(source: random.Random) -> tuple[tuple[Step, ...], tuple[Away, ...], set[str]]:
    """Draw steps, some at the same time, and who was seen away: as meant, for longer, not at all, or not looked at."""
    steps, aways, planted = [], [], set()
    start_s = float(source.randrange(12, 40))
    for _ in range(source.choice([0, 1, 1, 2, 2, 3])):
        name = source.choice(["kill", "kill", "pause", "partition", "partition", "alarm", "kill_client"])
        node, end_s = source.choice(NODES), start_s + source.choice([2, 5, 10, 20, 25])
        if end_s > 68:
            break
        steps.append(Step(name, start_s, end_s, node))
        planted.add(name)
        seen_s = end_s + source.choice([2, 2, 2, 5, 20])
        state = {"kill": "down", "pause": "suspended", "partition": "paused"}.get(name, "")
        chance = source.random()
        if chance < 0.05:
            planted.add("never_away")
        elif chance < 0.1 and state and name != "partition" and end_s - start_s >= 5:
            planted.add("back_early")
            aways.append(Away(node, start_s, start_s + 2, state))
        elif state and (name != "partition" or end_s - start_s >= 10):
            aways.append(Away(node, start_s + (5.5 if name == "partition" else 0), seen_s, state))
        start_s = source.choice([start_s, start_s + 1, start_s + 4, end_s + 1, end_s + 12, end_s + 25])
    if source.random() < 0.15:
        from_s = float(source.randrange(12, 70))
        aways.append(Away(source.choice(NODES), from_s, from_s + source.choice([4, 15, 30]), "down"))
        planted.add("away_by_itself")
    return tuple(steps), tuple(aways), planted


def together(times: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans in order, those that touch as one."""
    merged: list[tuple[float, float]] = []
    for start_s, end_s in sorted(times):
        if merged and start_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end_s, merged[-1][1]))
        else:
            merged.append((start_s, end_s))
    return merged


def is_of(step: Step, away: Away) -> bool:
    """Whether a node was seen away because of a step: one that is cut off pauses only once it has noticed."""
    noticed_s = step.start_s + (CUT_NOTICED_S if step.name == "partition" else 0)
    return step.on_brokers and step.node == away.node and noticed_s <= away.from_s < step.end_s


def taken_away(steps: Sequence[Step], aways: Sequence[Away]) -> tuple[Away, ...]:
    """Return the times in which nodes were seen away because of a step: from one on they stay away until seen up."""
    taken: list[Away] = []
    for one in sorted(aways, key=lambda away: away.from_s):
        if any(is_of(step, one) for step in steps) or any(
            other.node == one.node and one.from_s <= other.to_s for other in taken
        ):
            taken.append(one)
            # One that had gone by itself before may stay away for longer.
            longer = [o.to_s for o in aways if o.node == one.node and o.from_s < one.from_s < one.to_s < o.to_s]
            taken += [replace(one, to_s=to_s) for to_s in longer]
    return tuple(taken)


def gone_by_itself(steps: Sequence[Step], aways: Sequence[Away]) -> list[Away]:
    """Return the times in which nodes were seen away, and not because of a step."""
    taken = taken_away(steps, aways)
    return [one for one in aways if one not in taken]


def may_have_paused(steps: Sequence[Step], aways: Sequence[Away]) -> bool:
    """Whether a node that went by itself may have paused: for a cut, for others that it may still have taken for gone
    when they were back, or as it had been away itself shortly before."""
    for one in gone_by_itself(steps, aways):
        gone = {
            other.node
            for other in aways
            if other is not one and other.from_s < one.to_s and one.from_s < other.to_s + BACK_NOTICED_S
        }
        if one.node in gone or len(gone) == len(NODES) - 1 or any(step.name == "partition" for step in steps):
            return True
    return False


def has_majority(steps: Sequence[Step], aways: Sequence[Away], at_s: float) -> bool:
    """Whether steps left two nodes up, and not cut off from each other."""
    away = {one.node for one in taken_away(steps, aways) if one.from_s <= at_s < one.to_s}
    cut = set()
    for step in steps:
        if step.name == "partition" and step.start_s <= at_s < step.end_s:
            cut |= set(apart([step.node], NODES))
    up = [node for node in NODES if node not in away]
    return any(one != other and (one, other) not in cut for one in up for other in up)


def client_events(steps: Sequence[Step], publishers: int) -> list[Any]:
    """Return the events of steps that raise an alarm, and of publishers: blocked by alarms, killed by steps."""
    events: list[Any] = []
    for number, step in enumerate(steps):
        if step.name == "alarm":
            nodes = [step.node]
            events += fault(step.start_s, step.end_s, step=50 + number, name="alarm", alarm="memory", alarmed=nodes)
    for worker in (f"publisher-{number}" for number in range(publishers)):
        events.append(event(0, "worker", worker=worker, event="started"))
        killed = together([(one.start_s, one.end_s) for one in steps if one.name == "kill_client"])
        for from_s, to_s in killed:
            events.append(event(from_s, "worker", worker=worker, event="killed"))
            events.append(event(to_s, "worker", worker=worker, event="started"))
        for begin_s, end_s in together([(one.start_s, one.end_s) for one in steps if one.name == "alarm"]):
            # One that is killed is not blocked meanwhile.
            at_s = begin_s
            for from_s, to_s in [*[one for one in killed if one[1] > begin_s], (end_s, end_s)]:
                if at_s < min(from_s, end_s):
                    events.append(event(at_s, "worker", worker=worker, event="blocked"))
                    events.append(event(min(from_s, end_s), "worker", worker=worker, event="unblocked"))
                at_s = max(at_s, to_s)
    return events


def longest_gap_s(times_s: Sequence[float], from_s: float, to_s: float) -> float:
    """Return the longest time between two moments in which no one looked."""
    later = [from_s, *[at_s for at_s in times_s if at_s > from_s], to_s]
    return max(b - a for a, b in itertools.pairwise(later))
