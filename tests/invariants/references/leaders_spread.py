"""Judge the spread of leaders by counting, second by second, how many queues each node leads."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rabbitmq_resilience.checkers.verdict import History
from tests.invariants.literal import event, sample
from tests.invariants.references.common import END_S, NODES, Away, Step, checked, drawn_steps, made

#: When in its second a sample is taken, and for how long leaders may not be seen.
AT_S, HOLE_S = 0.3, 10
#: The leader of each queue; "": it has none; None: no sample was taken.
Leaders = tuple[str, ...] | None


@dataclass(frozen=True)
class Case:
    """Who led which queue, second by second. ``copies``: how many each queue has; ``kinds``: what it is."""

    copies: tuple[int, ...]
    kinds: tuple[str, ...]
    leaders: tuple[Leaders, ...]
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    excess_max: int
    within_s: float
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case in which there is a rebalancing, and nothing is near the edge of a bound."""
    while True:
        case = _drawn(source)
        if any(is_rebalancing(step) for step in case.steps) and not is_rough(case):
            return case


def is_rebalancing(step: Step) -> bool:
    """Whether leaders were spread by this step."""
    return step.name == "rebalance" and not step.skipped


def _drawn(source: random.Random) -> Case:
    copies = (3, *(source.choice([3, 3, 3, 1]) for _ in range(source.randrange(7))))
    kinds = tuple("quorum" if many > 1 else source.choice(["classic", "quorum"]) for many in copies)
    steps, aways = drawn_steps(source, ("rebalance", "rebalance", "rebalance", "kill", "partition", "kill_client"))
    planted = {"many_queues" if len(copies) > 3 else "few_queues"}
    if source.random() < 0.2:
        aways = (*aways, Away(source.choice(NODES), 11.0, 100.0))
        planted.add("down")
    current = [source.choice(NODES[-many:]) for many in copies]
    leaders: list[Leaders] = []
    changes = drawn_changes(source, steps, planted)
    for at_s in range(int(END_S)):
        for from_s, how in changes:
            if at_s <= from_s < at_s + 1:
                up = [node for node in NODES if not is_away(aways, node, from_s)] or list(NODES)
                source.shuffle(up)
                current = placed(how, copies, current, up)
        leaders.append(tuple(current))
    hide(source, leaders, planted)
    within_s = source.choice([5.0, 10.0, 20.0, 30.0])
    excess_max, names = source.choice([0, 0, 0, 1]), "+".join(sorted(planted))
    return Case(copies, kinds, tuple(leaders), steps, aways, excess_max, within_s, names)


def drawn_changes(source: random.Random, steps: Sequence[Step], planted: set[str]) -> list[tuple[float, str]]:
    """Draw when leaders are moved, and how."""
    changes = []
    for step in steps:
        how = source.choice(["even", "even", "even", "even", "one_more", "two_more", "not"])
        if is_rebalancing(step):
            changes.append((step.start_s - 0.5 + source.choice([0, 0, 1, 3, 12, 25]), how))
            planted.add(how)
    if source.random() < 0.3:
        changes.append((source.randrange(15, 95) + 0.5, source.choice(["one_more", "two_more", "even"])))
        planted.add("drift")
    if source.random() < 0.2:
        broken_s = source.randrange(15, 94)
        changes += [(broken_s + 0.1, "all_on_one"), (broken_s + source.choice([1.1, 2.1, 5.1]), "even")]
        planted.add("briefly")
    return changes


def hide(source: random.Random, leaders: list[Leaders], planted: set[str]) -> None:
    """Take away what is seen for some seconds."""
    for _ in range(source.choice([0, 0, 0, 1, 2])):
        start_s, length_s = source.randrange(10, 94), source.choice([1, 2, 4, 15, 30])
        what = source.choice(["no_sample", "no_leader"])
        planted.add(what)
        for at_s in range(start_s, min(int(END_S), start_s + length_s)):
            row = leaders[at_s]
            leaders[at_s] = None if what == "no_sample" or row is None else ("", *row[1:])


def placed(how: str, copies: Sequence[int], current: Sequence[str], up: Sequence[str]) -> list[str]:
    """Return who leads after leaders were moved; queues with one copy stay."""
    leaders, moved = list(current), [queue for queue, copy in enumerate(copies) if copy > 1]
    for number, queue in enumerate(moved):
        if how != "not":
            leaders[queue] = up[number % len(up)]
    for _ in range({"one_more": 1, "two_more": 2, "all_on_one": len(moved)}.get(how, 0)):
        others = [queue for queue in moved if leaders[queue] != up[0]]
        if others:
            leaders[others[-1]] = up[0]
    return leaders


def is_away(aways: Sequence[Away], node: str, at_s: float) -> bool:
    """Whether a node was seen away."""
    return any(away.node == node and away.from_s <= at_s < away.to_s for away in aways)


def recorded(case: Case) -> History:
    """Return the history of a case."""
    names = [f"q{queue + 1}" for queue in range(len(case.copies))]
    queues = {}
    for name, copies, kind in zip(names, case.copies, case.kinds, strict=True):
        queues[name] = {"type": kind, "members": list(NODES[-copies:]), "leader": "c1"}
    looks = []
    for at_s, leaders in enumerate(case.leaders):
        if leaders is not None:
            look = sample(at_s + AT_S, names=names)
            rows = {}
            for name, leader in zip(names, leaders, strict=True):
                copies = len(queues[name]["members"])
                rows[name] = {**look.queues[name], "leader": leader or None, "members": copies, "online": copies}
            looks.append(replace(look, queues=rows))
    history: History = made([], [], case.steps, case.aways, *looks, declared=event(0, "queues", queues=queues))
    return history


def is_spread(case: Case, at_s: int) -> bool | None:
    """Whether leaders are spread evenly in a second; None: that is not known."""
    leaders = case.leaders[at_s]
    if leaders is None:
        return None
    running = [node for node in NODES if not is_away(case.aways, node, at_s + AT_S)]
    counted = [queue for queue, kind in enumerate(case.kinds) if kind == "quorum"]
    share = -(-len(counted) // max(1, len(running))) + case.excess_max
    for node in running:
        mine = [queue for queue in counted if leaders[queue] == node]
        if len(mine) > share and any(case.copies[queue] > 1 for queue in mine):
            return False
    return None if any(not leaders[queue] for queue in counted) else True


def verdict(case: Case, later_s: float = 0, hole_s: float = HOLE_S) -> str:
    """Return the verdict by the text: "Rebalancing spreads the leaders of queues evenly over the nodes"."""
    answers = {verdict_of(case, step, later_s, hole_s) for step in case.steps if is_rebalancing(step)}
    for answer in ("INVALID", "UNKNOWN"):
        if answer in answers:
            return answer
    return "VALID"


def verdict_of(case: Case, step: Step, later_s: float, hole_s: float) -> str:
    """Return the verdict of one rebalancing."""
    due_s = step.start_s + case.within_s + later_s
    next_s = min([one.start_s for one in case.steps if one.start_s > step.start_s and not one.skipped], default=END_S)
    seen = [at_s for at_s in range(int(END_S)) if step.start_s < at_s + AT_S < next_s]
    late = [at_s for at_s in seen if at_s + AT_S >= due_s]
    if any(is_spread(case, at_s) is False for at_s in late):
        return "INVALID"
    early = [is_spread(case, at_s) for at_s in seen if at_s not in late and at_s + AT_S >= next_s - hole_s]
    early = [state for state in early if state is not None]
    if all(is_spread(case, at_s) is None for at_s in late):
        # What comes first ends the time that it has; leaders that were spread by then were so in time.
        return "VALID" if early and early[-1] else "UNKNOWN"
    known = [at_s + AT_S for at_s in late if is_spread(case, at_s)]
    before = [at_s + AT_S for at_s in seen if at_s not in late and is_spread(case, at_s) is not None]
    moments = [max([step.start_s, *before]), *known, next_s]
    return "UNKNOWN" if any(b - a > hole_s for a, b in itertools.pairwise(moments)) else "VALID"


def is_rough(case: Case) -> bool:
    """Whether a second or two more or less make another verdict."""
    answers = {verdict(case, later_s, hole_s) for later_s in (-1.5, 0, 1.5) for hole_s in (8, 10, 12)}
    return len(answers) > 1


def found(case: Case) -> str:
    """Return the checker's answer."""
    bounds = {"excess_max": case.excess_max, "within_s": case.within_s}
    return str(checked("leaders_spread", recorded(case), **bounds).verdict)
