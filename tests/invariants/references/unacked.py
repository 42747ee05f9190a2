"""Judge what was not acknowledged by looking at each node's last word of each queue."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from rabbitmq_resilience.checkers.verdict import History
from tests.invariants.literal import event, told
from tests.invariants.references.common import END_S, NODES, Away, Step, checked, drawn_steps, made

#: "For the last 15 s".
SILENT_S = 15
Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Word:
    """What a node said of a queue, second by second; None: it said nothing."""

    node: str
    queue: str
    values: Values


@dataclass(frozen=True)
class Case:
    """What nodes said of queues. ``led_by``: (second, queue, leader) of each look that found one. ``drained_s``: when
    the drain was over."""

    names: tuple[str, ...]
    words: tuple[Word, ...]
    led_by: tuple[tuple[int, str, str], ...]
    drained_s: float
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case in which it is clear who spoke to the end."""
    while True:
        case = _drawn(source)
        if not is_rough(case):
            return case


def _drawn(source: random.Random) -> Case:
    names = ("q1", "q2", "q3")[: source.choice([1, 2, 3])]
    steps, aways = drawn_steps(source, ("kill", "pause", "partition", "kill_client"))
    drained_s = source.choice([91.0, 91.0, 91.0, 85.0, 78.0, 93.5])
    planted: set[str] = set()
    words = []
    for name in (*names, *(["stranger"] if source.random() < 0.1 else [])):
        tellers = source.sample(NODES, source.choice([1, 1, 2, 3]))
        held = source.choice(["none", "none", "none", "briefly", "stuck", "late", "until_gone"])
        if name == "stranger":
            held = "stuck"
        planted.add(name if name == "stranger" else held)
        for number, node in enumerate(tellers):
            from_s, to_s = 0, 100
            if number or source.random() < 0.1:
                ends = [(0, 100), (0, 100), (0, 40), (30, 100), (50, 88), (0, source.randrange(70, 100))]
                from_s, to_s = source.choice(ends)
            values = []
            for at_s in range(100):
                value = held_at(held, at_s, drained_s) if not number or source.random() < 0.5 else 0
                values.append(value if from_s <= at_s < to_s and not is_away(aways, node, at_s) else None)
            if number:
                says = source.random() < 0.3
                planted |= {"two_say_it"} if says else set()
                at_times = range(100)
                values = [None if values[at] is None else held_at(held, at, drained_s) * says for at in at_times]
            if source.random() < 0.1:
                planted.add("no_number")
                values[source.choice([50, 80, 92, 94])] = math.nan
            words.append(Word(node, name, tuple(values)))
    led_by, how_led = drawn_leaders(source, names)
    planted |= how_led
    return Case(names, tuple(words), led_by, drained_s, steps, aways, "+".join(sorted(planted)))


def drawn_leaders(source: random.Random, names: tuple[str, ...]) -> tuple[tuple[tuple[int, str, str], ...], set[str]]:
    """Draw which node leads each queue at which look, and say in words how."""
    found, words = [], set()
    for name in names:
        leader = source.choice([*NODES, None, None])
        moved_s = source.choice([1000, 1000, 60, 85, 92])
        for at_s in (70, 84, 90, 94):
            now = leader if at_s < moved_s else source.choice(NODES)
            if now is not None and source.random() < 0.9:
                found.append((at_s, name, now))
        words.add("no_leader" if leader is None else "moved" if moved_s < END_S else "led")
    return tuple(found), words


def held_at(held: str, at_s: int, drained_s: float) -> float:
    """Return how many messages a queue holds that are not acknowledged."""
    if held == "none":
        return 0
    if held == "briefly":
        return 5 if 20 <= at_s < 60 else 0
    if held == "late":
        return 3 if 30 <= at_s < drained_s - 3 else 0
    return 3 if at_s >= 30 and (held == "stuck" or at_s <= END_S) else 0


def is_away(aways: tuple[Away, ...], node: str, at_s: float) -> bool:
    """Whether a node was away, so that it said nothing."""
    return any(away.node == node and away.from_s <= at_s < away.to_s for away in aways)


def recorded(case: Case) -> History:
    """Return the history of a case."""
    looks = [
        event(at_s, "sample", node="", queues={name: {"ready": 0, "unacked": 0, "leader": leader}})
        for at_s, name, leader in case.led_by
    ]
    rows = [told("unacked", word.node, said(word.values), queue=word.queue, end_s=100) for word in case.words]
    drain = event(case.drained_s, "drain", complete=True, confirmed=1, received=1, unconsumed=0, detail="")
    history: History = made([], [], case.steps, case.aways, drain, *looks, names=case.names, metrics=rows)
    return history


def said(values: Values) -> Callable[[float], float | None]:
    """Return what gives the value of a second."""
    return lambda at_s: values[int(at_s)]


def last_words(case: Case, name: str) -> list[tuple[int, float, str]]:
    """Return when each node last spoke of a queue before the consumers went, what it said, and which node it was."""
    words = []
    for word in case.words:
        last = None
        for at_s, value in enumerate(word.values):
            if word.queue == name and at_s <= END_S and value is not None and not math.isnan(value):
                last = at_s, value, word.node
        if last is not None:
            words.append(last)
    return words


def verdict(case: Case) -> str:
    """Return the verdict by the text: "What was delivered is acknowledged in the end"."""
    answers = {verdict_of(case, name) for name in case.names}
    for answer in ("INVALID", "UNKNOWN"):
        if answer in answers:
            return answer
    return "VALID"


def verdict_of(case: Case, name: str) -> str:
    """Return the verdict of one queue."""
    words = [word for word in last_words(case, name) if word[0] >= case.drained_s and END_S - word[0] <= SILENT_S]
    if not words:
        return "UNKNOWN"
    to_the_end = {node: value for at_s, value, node in words if at_s >= max(said_s for said_s, _, _ in words) - 1}
    lately = [leader for at_s, queue, leader in case.led_by if queue == name and END_S - SILENT_S <= at_s <= END_S]
    if lately and all(leader == lately[0] for leader in lately):
        if lately[0] in to_the_end:
            return "INVALID" if to_the_end[lately[0]] > 0 else "VALID"
        stale = {node: value for _, value, node in words if node == lately[0]}
        if not stale:
            return "UNKNOWN"
        to_the_end |= stale
    answers = {value > 0 for value in to_the_end.values()}
    return "UNKNOWN" if len(answers) > 1 else "INVALID" if answers == {True} else "VALID"


def is_rough(case: Case) -> bool:
    """Whether some nodes fell silent shortly before others, so that the text does not say who spoke to the end."""
    for name in case.names:
        times = [at_s for at_s, _, _ in last_words(case, name)]
        if times and any(max(times) - at_s in range(2, 7) for at_s in times):
            return True
    return False


def found(case: Case) -> str:
    """Return the checker's answer."""
    return str(checked("unacked", recorded(case)).verdict)
