"""Judge whether a broker ended by itself by looking at each look at each node."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.checkers.verdict import History
from tests.invariants.literal import cluster, deliver, event, fault, history, load, phases, publish, queues
from tests.invariants.references.common import END_S, NODES, Step, checked, step_events
from tests.invariants.references.served import longest_gap_s

UNSEEN_S = 10.0
#: No case is drawn in which a node goes so soon before or after a step on it begins or ends.
ROUGH_S = 2.0


@dataclass(frozen=True)
class Episode:
    """What a node was seen to be in some time; later ones hide earlier ones."""

    node: str
    from_s: float
    to_s: float
    state: str


@dataclass(frozen=True)
class Case:
    """Steps, and what was seen of the nodes."""

    steps: tuple[Step, ...]
    episodes: tuple[Episode, ...]
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case."""
    while True:
        case = _drawn(source)
        if not any(is_rough(case, one) for one in case.episodes):
            return case


def _drawn(source: random.Random) -> Case:
    steps, episodes, planted = [], [], set()
    at_s = float(source.randrange(11, 40))
    for _ in range(source.choice([0, 1, 1, 2, 3])):
        name, node = (
            source.choice(["kill", "kill", "pause", "partition", "stress", "kill_client"]),
            source.choice(NODES),
        )
        end_s = at_s + source.choice([3, 6, 10, 20])
        if end_s > 69:
            break
        skipped = source.random() < 0.1
        steps.append(Step(name, at_s, end_s, node, skipped))
        planted.add("skipped" if skipped else name)
        if name in ("kill", "pause", "stress") and (not skipped or source.random() < 0.5) and source.random() < 0.9:
            state = {"kill": "down", "pause": "suspended", "stress": "down"}[name]
            back_s = end_s + source.choice([-14, -8, 0, 2, 4, 8, 20, 60])
            back_s = back_s if back_s > at_s + 1 else end_s + 2
            episodes.append(Episode(node, at_s + (3 if name == "stress" else 0.5), back_s, state))
            if source.random() < 0.2:
                episodes.append(Episode(node, back_s + 3, back_s + 5, "down"))
                planted.add("again")
        at_s = source.choice([at_s, at_s + 3, end_s + 3, end_s + 12])
    for _ in range(source.choice([0, 0, 0, 1])):
        state, from_s = source.choice(["down", "down", "paused", "suspended"]), float(source.randrange(1, 92))
        episodes.append(Episode(source.choice(NODES), from_s, from_s + source.choice([0.5, 2, 10, 40]), state))
        planted.add(f"{state} by itself")
    if source.random() < 0.3:
        from_s = float(source.randrange(1, 92))
        episodes.append(Episode(source.choice(NODES), from_s, from_s + source.choice([3, 7, 13, 30]), "unseen"))
        planted.add("unseen")
    return Case(tuple(steps), tuple(episodes), "+".join(sorted(planted)) or "nothing")


def is_rough(case: Case, one: Episode) -> bool:
    """Whether the text does not say if a step on the node, which begins or ends so near, is the cause."""
    for step in case.steps:
        if step.node == one.node and one.state != "unseen":
            if one.from_s != step.start_s + 0.5 and abs(one.from_s - step.start_s) < ROUGH_S:
                return True
            if abs(one.from_s - step.end_s) < ROUGH_S:
                return True
    return False


def looks(case: Case, node: str) -> list[tuple[float, str]]:
    """Return what a node was seen to be each half second; nothing where it was not looked at."""
    seen = []
    for half in range(int(2 * END_S)):
        at_s, state = half / 2, "up"
        for one in case.episodes:
            if one.node == node and one.from_s <= at_s < one.to_s:
                state = one.state
        if state != "unseen":
            seen.append((at_s, state))
    return seen


def recorded(case: Case) -> History:
    """Return the history of a case."""
    states: dict[float, dict[str, str]] = {half / 2: {} for half in range(int(2 * END_S))}
    for node in NODES:
        for at_s, state in looks(case, node):
            states[at_s][node] = state
    events: list[Any] = [cluster(), queues("q1"), phases(), load(10, 2)]
    events += step_events([step for step in case.steps if step.name != "stress" or step.skipped])
    for number, step in enumerate(case.steps):
        if step.name == "stress" and not step.skipped:
            events += fault(step.start_s, step.end_s, step=50 + number, name="stress", starved=[step.node])
    events += [event(at_s, "nodes", states=seen) for at_s, seen in states.items() if seen]
    return history([publish(0, 1)], [deliver(0)], events)


def verdict(case: Case) -> str:
    """Return the verdict by the text."""
    if any(_crashed(case, node) for node in NODES):
        return "INVALID"
    for node in NODES:
        if longest_gap_s([at_s for at_s, _ in looks(case, node)], 0.0, END_S) > UNSEEN_S:
            return "UNKNOWN"
    return "VALID"


def _crashed(case: Case, node: str) -> bool:
    """Whether a node's process was seen gone, and no step took it away or starved it."""
    return any(state == "down" and not _is_excused(case, node, at_s) for at_s, state in looks(case, node))


def _is_excused(case: Case, node: str, at_s: float) -> bool:
    """Whether a step took a node away that was not seen up again since, or starved it."""
    for step in case.steps:
        if step.skipped or step.node != node or step.name not in ("kill", "pause", "stress") or step.start_s > at_s:
            continue
        since = [(t, state) for t, state in looks(case, node) if step.start_s <= t <= at_s]
        if step.name == "stress":
            # While it is starved, and from then on until it is seen up.
            if at_s <= step.end_s or not any(state == "up" and t >= step.end_s for t, state in since):
                return True
            continue
        gone = [t for t, state in since if state in ("down", "suspended")]
        # It went while the step was on, as far as was seen: no look after the step saw it up before it was gone.
        before = [t for t, state in since if t < gone[0] and state == "up"]
        is_of_step = gone[0] <= step.end_s + ROUGH_S / 2 or not any(t > step.end_s for t in before)
        if is_of_step and not any(state == "up" and gone[0] < t < at_s for t, state in since):
            return True
    return False


def finding(case: Case) -> Any:
    """Return the whole finding."""
    return checked("no_crash", recorded(case))


def found(case: Case) -> str:
    """Return the checker's answer."""
    return str(finding(case).verdict)
