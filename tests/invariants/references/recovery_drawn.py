"""Draw histories of clusters that become whole again, or do not."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.invariants.references.common import NODES, Away, Machine, Step

ILL = ("leader", "online", "shrunk", "missing", "partitioned")


@dataclass(frozen=True)
class Ill:
    """How a queue was listed in some time.

    "partitioned" is of the nodes; "silent": it has messages and delivers none.
    """

    kind: str
    queue: int
    from_s: float
    to_s: float


@dataclass(frozen=True)
class Case:
    """A history. ``blind``: when no one looked at all "nodes", one of them, or the "queues".

    ``waited``: how the wait for recovery ended, if it was recorded.
    """

    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    ills: tuple[Ill, ...]
    queues: int
    blind: tuple[tuple[str, float, float], ...]
    waited: str
    within_s: float
    machine: tuple[Machine, ...]
    planted: str


def _drawn_steps(source: random.Random, planted: set[str]) -> tuple[list[Step], list[Away], list[Ill], int]:
    """Draw steps, who was away for them, which queues lacked a member, and how many queues there are."""
    steps, aways, ills = [], [], []
    at_s, number = float(source.randrange(12, 40)), source.choice([1, 2])
    for _ in range(source.choice([1, 1, 2, 3])):
        name, node = source.choice(["kill", "pause", "partition", "kill_client"]), source.choice(NODES)
        end_s = at_s + source.choice([2, 5, 10])
        if end_s > 60:
            break
        skipped = source.random() < 0.1
        steps.append(Step(name, at_s, end_s, node, skipped))
        planted.add("skipped" if skipped else name)
        if name in ("kill", "pause") and not skipped:
            back_s = end_s + source.choice([1, 4, 8, 12, 24, 36, 60])
            aways.append(Away(node, at_s, back_s, "down" if name == "kill" else "suspended"))
            for queue in range(number):
                if source.random() < 0.7:
                    ills.append(Ill("online", queue, at_s + 0.1, back_s + source.choice([0, 1, 5])))
        at_s = source.choice([at_s, at_s + 2, end_s + 1, end_s + 12])
    return steps, aways, ills, number


def drawn(source: random.Random) -> Case:
    """Draw a case, perhaps at the edge of a bound."""
    within_s = source.choice([15.0, 20.0, 30.0])
    planted: set[str] = set()
    steps, aways, ills, number = _drawn_steps(source, planted)
    for _ in range(source.choice([0, 0, 1, 1, 2])):
        kind, from_s = source.choice([*ILL, *ILL, "silent", "blips", "blip", "away"]), float(source.randrange(12, 92))
        to_s = from_s + source.choice([3, 6, 10, 20, 25, 45, 60])
        queue = source.randrange(number)
        if kind == "away":
            aways.append(Away(source.choice(NODES), from_s, to_s, source.choice(["down", "paused", "suspended"])))
        elif kind == "blips":
            ills += [
                Ill("leader", queue, float(at), at + 1.0) for at in range(int(from_s), 95, source.choice([11, 12]))
            ]
        elif kind == "blip":
            ills.append(Ill(source.choice(["leader", "online"]), queue, from_s, from_s + 1))
        else:
            ills.append(Ill(kind, queue, from_s, to_s))
        planted.add(kind)
    blind = []
    if source.random() < 0.25:
        what, from_s = source.choice(["nodes", "queues", *NODES]), float(source.randrange(12, 92))
        blind.append((what, from_s, from_s + source.choice([3, 14, 20, 90])))
        planted.add("blind")
    machine: tuple[Machine, ...] = ()
    # Which broker comes last where a queue is not listed is not said.
    if source.random() < 0.3 and aways and "missing" not in planted:
        others, part = source.choice([(0.6, 0.0), (0.0, 0.1), (0.0, 0.3), (0.0, 0.6)])
        machine = (Machine(0.0, 95.0, others, source.choice([aways[-1].node, "a1"]), part),)
        planted.add(f"others {others} waited {part}")
    waited = source.choice(["", "complete", "complete", "in vain"] if source.random() < 0.2 else ["complete", ""])
    planted.add(f"wait {waited}")
    names = "+".join(sorted(planted))
    return Case(tuple(steps), tuple(aways), tuple(ills), number, tuple(blind), waited, within_s, machine, names)
