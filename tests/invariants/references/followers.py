"""Judge followers by looking at each member of each queue, second by second."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from rabbitmq_resilience.checkers.verdict import History
from tests.invariants.literal import queues, sample, told
from tests.invariants.references.common import (
    END_S,
    NODES,
    PUBLISHED_S,
    Away,
    Step,
    checked,
    drawn_steps,
    made,
)

#: How long before a log must reach what was committed, and how old a word may be.
BEFORE_S, OLD_S = 10, 15
Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Member:
    """What a member said of a queue, second by second; None: nothing."""

    node: str
    queue: str
    committed: Values
    written: Values


@dataclass(frozen=True)
class Case:
    """What members said, and how soon they must have caught up."""

    names: tuple[str, ...]
    members: tuple[Member, ...]
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    within_s: float
    planted: str
    #: Of a mirrored queue, the only one then: whether c1 was not synchronised each second; None: no sample was taken.
    behind: Values = ()


def generated(source: random.Random) -> Case:
    """Draw a case in which nothing changes within a second or two of the bounds."""
    while True:
        case = _drawn(source)
        if case.steps and not is_rough(case):
            return case


def _drawn(source: random.Random) -> Case:
    names = ("q1", "q2")[: source.choice([1, 2])]
    steps, aways = drawn_steps(source, ("kill", "pause", "partition", "kill_client", "rebalance"))
    if source.random() < 0.25:
        return _mirrored(source, steps)
    planted, members = set[str](), []
    within_s = source.choice([5.0, 10.0, 10.0, 20.0, 60.0])
    for name in names:
        rate = source.choice([0, 1, 5, 5])
        laggard = source.choice(NODES)
        for node in NODES:
            lag = source.choice(["none", "none", "stuck", "slow", "late", "again"]) if node == laggard else "none"
            planted.add(lag)
            member = _member(source, node, name, rate, lag)
            silences = [(away.from_s, away.to_s) for away in aways if away.node == node]
            if source.random() < 0.15:
                from_s = float(source.randrange(10, 95))
                silences.append((from_s, from_s + source.choice([2, 5, 8, 30, 90])))
                planted.add("silence")
            for from_s, to_s in silences:
                member = silenced(member, from_s, to_s)
            members.append(member)
    return Case(names, tuple(members), steps, aways, within_s, "+".join(sorted(planted)))


def _mirrored(source: random.Random, steps: tuple[Step, ...]) -> Case:
    """Draw a case of a mirrored queue."""
    behind: list[float | None] = [0] * int(END_S)
    for value in (1, 1, None):
        from_s = source.randrange(12, 94)
        for at_s in range(from_s, min(int(END_S), from_s + source.choice([0, 0, 2, 8, 20, 40]))):
            behind[at_s] = value
    return Case(("q1",), (), steps, (), source.choice([5.0, 10.0, 20.0]), "mirrored", tuple(behind))


def _member(source: random.Random, node: str, name: str, rate: int, lag: str) -> Member:
    """Draw what a member says of its log."""
    delay_s, stuck_s, until_s = source.choice([0, 1, 3]), 1000, 1000
    if lag == "slow":
        delay_s = source.choice([5, 15, 25])
    if lag in ("stuck", "late", "again"):
        stuck_s, until_s = source.randrange(12, 70), 1000
    if lag == "late":
        until_s = stuck_s + source.choice([5, 20, 40])
    if lag == "again":
        stuck_s, until_s = source.randrange(60, 90), source.choice([85, 92, 1000])
    committed, written = [], []
    for at_s in range(96):
        seen_s = at_s - delay_s
        if stuck_s <= seen_s < until_s:
            seen_s = stuck_s
        index = 100 + rate * int(max(0, min(seen_s, PUBLISHED_S)))
        written.append(float(index))
        committed.append(float(index - (1 if rate else 0) * source.choice([0, 0, 1])))
    return Member(node, name, tuple(committed), tuple(written))


def silenced(member: Member, from_s: float, to_s: float) -> Member:
    """Return the member as it is that says nothing for some time."""
    rows = []
    for values in (member.committed, member.written):
        rows.append(tuple(None if from_s <= at_s < to_s else value for at_s, value in enumerate(values)))
    return replace(member, committed=rows[0], written=rows[1])


def recorded(case: Case) -> History:
    """Return the history of a case."""
    rows, looks = [], []
    for at_s, value in enumerate(case.behind):
        look = sample(at_s, names=case.names)
        if value is not None:
            row = {**look.queues["q1"], "behind": ["c1"] if value else []}
            looks.append(replace(look, queues={"q1": row}))
    declared = queues(*case.names, kind="mirrored" if case.behind else "quorum")
    for member in case.members:
        rows.append(told("raft_commit_index", member.node, said(member.committed), queue=member.queue))
        rows.append(told("raft_written_index", member.node, said(member.written), queue=member.queue))
    history: History = made([], [], case.steps, case.aways, *looks, declared=declared, metrics=rows)
    return history


def said(values: Values) -> Callable[[float], float | None]:
    """Return what gives the value of a second."""
    return lambda at_s: values[int(at_s)]


def last_word(values: Values, at_s: float, old_s: float = OLD_S) -> float | None:
    """Return what was last said until a moment, unless that is too old."""
    for second in range(int(at_s), -1, -1):
        if at_s - second > old_s:
            break
        value = values[second]
        if value is not None:
            return value
    return None


def is_behind(case: Case, member: Member, at_s: int, old_s: float = OLD_S, before_s: float = BEFORE_S) -> bool | None:
    """Whether a member is behind by what it says at a moment; None: that is not known."""
    of_queue = [one for one in case.members if one.queue == member.queue]
    committed = [last_word(one.committed, at_s - before_s, old_s) for one in of_queue]
    known = [index for index in committed if index is not None]
    written = member.written[at_s]
    if 2 * len(known) <= len(of_queue) or written is None:
        return None
    return written < max(known)


def verdict(case: Case, old_s: float = OLD_S, before_s: float = BEFORE_S, later_s: float = 0) -> str:
    """Return the verdict by the text: "Followers catch up with their leaders"."""
    healed_s = max(step.end_s for step in case.steps if step.is_fault)
    due_s = int(healed_s + case.within_s + later_s)
    answers = set()
    every = [[None if value is None else bool(value) for value in case.behind]] if case.behind else []
    for member in case.members:
        every.append([is_behind(case, member, at_s, old_s, before_s) for at_s in range(int(END_S) + 1)])
    for states in every:
        if True in states[due_s:]:
            answers.add("INVALID")
        last_s = int(END_S)
        # It was seen level between the healing and when that was due, and at the end.
        for from_s, to_s in ((int(healed_s), min(due_s, last_s)), (last_s - int(old_s), last_s)):
            words = [state for state in states[from_s : to_s + 1] if state is not None]
            if not words or words[-1]:
                answers.add("UNKNOWN")
    for answer in ("INVALID", "UNKNOWN"):
        if answer in answers:
            return answer
    return "VALID"


def is_rough(case: Case) -> bool:
    """Whether the text does not decide: without a fault; or where a second more or less is another verdict."""
    if not any(step.is_fault for step in case.steps):
        return True
    answers = set()
    for old_s in (OLD_S - 2, OLD_S, OLD_S + 2):
        for before_s in (BEFORE_S - 2, BEFORE_S, BEFORE_S + 2):
            for later_s in (-2, 0, 2):
                answers.add(verdict(case, old_s, before_s, later_s))
    return len(answers) > 1


def found(case: Case) -> str:
    """Return the checker's answer."""
    return str(checked("followers", recorded(case), within_s=case.within_s).verdict)
