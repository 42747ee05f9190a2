"""Judge backlogs by looking at each sample of what queues hold."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rabbitmq_resilience.checkers.verdict import History
from tests.invariants.literal import event, load, sample
from tests.invariants.references.common import END_S, Away, Step, checked, drawn_steps, made

NAMES = ("q1", "q2")
STEADY_S, RATE_PER_S, HOLE_S = 10, 100, 10
#: Ready and unacknowledged of a queue; None: it is not listed. A number that is None is not given.
Depth = tuple[int | None, int | None] | None

#: When it was known what all queues held, in seconds, and how much that was.
Totals = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Case:
    """What queues held each second. ``skipped``: seconds in which no sample was taken."""

    depths: tuple[tuple[Depth, Depth], ...]
    skipped: tuple[int, ...]
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    within_s: float | None
    peak_min: int | None
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case whose backlog is not drained within a second of the bound."""
    while True:
        case = _drawn(source)
        if not is_rough(case):
            return case


def _drawn(source: random.Random) -> Case:
    base = source.choice([0, 0, 3, 10, 50])
    within_s = source.choice([None, 5, 10, 10, 20, 30])
    totals, planted = [base] * int(END_S), []
    for at_s in range(int(END_S)):
        totals[at_s] = max(0, base + source.choice([-2, -1, 0, 0, 1, 2]) * (base > 2))
    for _ in range(source.choice([0, 1, 1, 2])):
        shape = source.choice(["spike", "plateau", "plateau", "ramp", "forever", "slow"])
        planted.append(shape)
        _grow(source, shape, totals, source.choice([20, 300, 1000, 1000]))
    if source.random() < 0.1:
        planted.append("small")
        totals = [base + source.choice([0, 1, 2]) for _ in totals]
    depths: list[list[Depth]] = []
    share = source.choice([0.0, 0.3, 1.0])
    for total in totals:
        first = int(total * share)
        depths.append([(first, 0), (total - first - total // 10, total // 10)])
    steps, aways = drawn_steps(source, ("kill", "partition", "kill_client", "rebalance"))
    skipped = _hide(source, depths, planted)
    if source.random() < 0.1 and not steps:
        start_s, end_s, queue = source.randrange(20, 50), source.randrange(52, 68), source.randrange(2)
        of = source.choice(["", NAMES[queue], NAMES[queue], NAMES[1 - queue]])
        steps = (Step("delete_queue", start_s, end_s, of),)
        planted.append("deleted")
        for at_s in range(start_s + 1, end_s):
            depths[at_s][queue] = None
    peak_min = source.choice([None, None, None, 100, 2000])
    rows = tuple((one, other) for one, other in depths)
    return Case(rows, tuple(skipped), steps, aways, within_s, peak_min, "+".join(sorted(planted)) or "nothing")


def _hide(source: random.Random, depths: list[list[Depth]], planted: list[str]) -> list[int]:
    """Take away what is known for some seconds; return those in which no sample is taken."""
    skipped: list[int] = []
    for _ in range(source.choice([0, 0, 0, 1, 1, 2])):
        start_s = source.choice([source.randrange(11, 90), source.randrange(75, 94), 91])
        end_s = min(int(END_S), start_s + source.choice([1, 2, 3, 5, 8, 13, 30]))
        what, queue = source.choice(["unlisted", "no_number", "no_sample"]), source.randrange(2)
        planted.append(what)
        for at_s in range(start_s, end_s):
            if what == "no_sample":
                skipped.append(at_s)
            elif what == "unlisted":
                depths[at_s][queue] = None
            else:
                depths[at_s][queue] = source.choice([(None, None), (3, None), (None, 3)])
    return skipped


def _grow(source: random.Random, shape: str, totals: list[int], most: int) -> None:
    """Add a backlog of that shape to the totals."""
    start_s = source.randrange(11, 85)
    length_s = source.choice([1, 4, 8, 15, 35, 60])
    shake = source.choice([0, 0, 0.005, 0.03, 0.2])
    for at_s in range(start_s, int(END_S)):
        gone_s = at_s - start_s
        if shape == "forever" or gone_s < length_s:
            added = most if shape != "spike" or not gone_s else most // 2
            if shape == "ramp":
                added = most * (gone_s + 1) // length_s
            if shape == "slow":
                added = most * (length_s - gone_s) // length_s
            totals[at_s] += int(added * (1 - source.choice([0, 1]) * shake))


def recorded(case: Case) -> History:
    """Return the history of a case."""
    looks = []
    for at_s, row in enumerate(case.depths):
        if at_s in case.skipped:
            continue
        look = sample(at_s, names=NAMES)
        queues = {}
        for name, depth in zip(NAMES, row, strict=True):
            if depth is not None:
                queues[name] = {**look.queues[name], "ready": depth[0], "unacked": depth[1]}
        looks.append(replace(look, queues=queues))
    drain = event(91, "drain", complete=True, confirmed=0, received=0, unconsumed=0, detail="")
    return made([], [], case.steps, case.aways, *looks, drain, names=NAMES, loaded=load(10, RATE_PER_S))


def known(case: Case) -> list[tuple[int, int]]:
    """Return when it was known what all queues held, and how much that was."""
    totals = []
    for at_s, row in enumerate(case.depths):
        if at_s in case.skipped:
            continue
        total, is_known = 0, True
        for name, depth in zip(NAMES, row, strict=True):
            if depth is None:
                deletes = [step for step in case.steps if step.name == "delete_queue" and step.node in ("", name)]
                deleted = any(step.start_s <= at_s <= step.end_s for step in deletes)
                is_known = is_known and deleted
            elif depth[0] is None or depth[1] is None:
                is_known = False
            else:
                total += depth[0] + depth[1]
        if is_known:
            totals.append((at_s, total))
    return totals


def held_in_steady(totals: Totals) -> float:
    """Return what the queues held in the steady phase: what two looks found, or the only one."""
    held = sorted((total for at_s, total in totals if at_s < STEADY_S), reverse=True)
    return held[1] if len(held) > 1 else sum(held)


def drained(totals: Totals) -> tuple[float, float | None, float | None]:
    """Return when they first held the most, when they last held too much, and when they held little for good."""
    most = max(total for _, total in totals)
    steady = held_in_steady(totals)
    nearly = most - max(most * 0.01, min(steady, most * 0.05))
    first_s = next(at_s for at_s, total in totals if total >= nearly)
    over_s = under_s = None
    for at_s, total in totals:
        if at_s < first_s:
            continue
        if total > most * 0.05 and total > steady:
            over_s, under_s = at_s, None
        elif under_s is None:
            under_s = at_s
    return first_s, over_s, under_s


def holes(case: Case) -> list[tuple[int, int]]:
    """Return between which two known seconds there are others in which it is not known what they held."""
    seconds = [at_s for at_s, _ in known(case)]
    return [(a, b) for a, b in itertools.pairwise(seconds) if b > a + 1]


def hidden(case: Case) -> set[str]:
    """Return the verdicts that would be right, had they held the most of all in a hole of 10 s and more: as many as
    the load can have brought, just more than was seen, or just enough to have grown."""
    totals = known(case)
    most, value = max(total for _, total in totals), dict(totals)
    answers = set()
    for a, b in holes(case):
        for first_s in fine(a, b) if b - a > HOLE_S else ():
            held = value[a] + RATE_PER_S * (first_s - a)
            for more in {held, most + 1, usual(totals) + 1}:
                if most < more <= held:
                    answers.add(_verdict(case, sorted(totals + [(at_s, more) for at_s in fine(first_s, b)])))
    return answers


def fine(from_s: float, to_s: float) -> list[float]:
    """Return the quarters of a second from a moment, the next one where that is whole, to before another."""
    first, last = int(4 * from_s) + (from_s == int(from_s)), int(4 * to_s)
    return [quarter / 4 for quarter in range(first, last)]


def usual(totals: Totals) -> float:
    """Return up to how many messages wait in queues that have not grown."""
    return max(3 * held_in_steady(totals), RATE_PER_S)


def verdict(case: Case) -> str:
    """Return the verdict by the text: "How long the queues grow, and how soon they are short again"."""
    totals = known(case)
    if not totals or END_S - totals[-1][0] > HOLE_S:
        return "UNKNOWN"
    # Where holes decide, they may have held nothing in them.
    emptied = sorted(totals + [(at_s, 0) for a, b in holes(case) for at_s in range(a + 1, b)])
    answers = {_verdict(case, totals), _verdict(case, emptied), *hidden(case)}
    return answers.pop() if len(answers) == 1 else "UNKNOWN"


def _verdict(case: Case, totals: Totals) -> str:
    """Return the verdict where this is what they held."""
    if case.peak_min is not None and max(total for _, total in totals) < case.peak_min:
        return "UNKNOWN"
    if case.within_s is None:
        return "VALID"
    if max(total for _, total in totals) <= usual(totals):
        return "VALID"  # They did not grow.
    first_s, over_s, under_s = drained(totals)
    if over_s is not None and over_s - first_s >= case.within_s:
        return "INVALID"
    return "VALID" if under_s is not None and under_s - first_s <= case.within_s else "UNKNOWN"


def is_rough(case: Case) -> bool:
    """Whether the verdict is near the edge of a bound: depths are known to a second."""
    totals = known(case)
    if not totals or case.within_s is None:
        return False
    answers = {verdict(replace(case, within_s=case.within_s + more_s)) for more_s in (-1.5, 0, 1.5)}
    near = any(abs(b - a - HOLE_S) <= 1 for a, b in holes(case))
    return near or len(answers) > 1 or 84 <= totals[-1][0] <= 86


def found(case: Case) -> str:
    """Return the checker's answer."""
    bounds = {"drained_within_s": case.within_s, "peak_min": case.peak_min}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    return str(checked("backlog", recorded(case), **bounds).verdict)
