"""Judge dead letters by looking at each message and each queue that takes its letter."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import pairwise

from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.workload.dead_lettering import Rejected
from tests.invariants.literal import THREE, event
from tests.invariants.references.common import (
    Away,
    Message,
    Receipt,
    Step,
    checked,
    made,
    received_after_each,
)

PLANTS = ("drop", "drop", "twice", "twice_marked", "unasked", "never_came", "never_came_letter", "gave_up")
ONE_IN = 3
#: A letter that must have been where it belongs so long before a step, or was sent so long after it, is owed for sure.
CLEAR_S = 32.0
#: 10 s and 1.25 times the ``net_ticktime`` of 4 s; a second more or less is not drawn.
AGAIN_S = 15.0


@dataclass(frozen=True)
class Case:
    """A short history of q1 (index 0), whose letters go to ``taking`` queues (indexes 1 and 2)."""

    messages: tuple[Message, ...]
    receipts: tuple[Receipt, ...]
    #: (when, what) happened to consumer 0.
    connections: tuple[tuple[float, str], ...]
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    taking: int
    at_least_once: bool
    limited: bool
    kind: str
    version: str
    delivery_limit: int | None
    planted: str


def rejected(message: Message | Receipt) -> bool:
    """Whether consumers reject a message."""
    return bool(Rejected(ONE_IN)(message.publisher, message.sequence))


def generated(source: random.Random) -> Case:
    """Draw a case in which no missing letter is near the edge of a disturbance."""
    while True:
        case = _drawn(source)
        if not is_rough(case):
            return case


def _drawn(source: random.Random) -> Case:
    at_least_once, limited = source.random() < 0.4, source.random() < 0.3
    steps: list[Step] = []
    aways: list[Away] = []
    at_s = 14.0
    for _ in range(source.choice([0, 0, 1, 1, 2])):
        name = source.choice(["kill", "partition", "kill_client", "rebalance"])
        skipped = source.random() < 0.1
        steps.append(Step(name, at_s, at_s + 2, "a1", skipped))
        if name == "kill" and not skipped:
            aways.append(Away("a1", at_s, at_s + 3))
        at_s += source.choice([6.0, 12.0])
    taking = source.choice([1, 1, 2])
    last_s = source.choice([85.0] * 7 + [17.0, 24.0])
    messages, receipts, planted = [], [], []
    for publisher in range(source.choice([1, 2])):
        sent_s = 1.0 + publisher / 4
        for sequence in range(20):
            outcome = source.choice(["confirmed"] * 9 + ["unknown"])
            one = Message(publisher, sequence, 0, sent_s, outcome)
            messages.append(one)
            if outcome == "confirmed" or source.random() < 0.5:
                receipts.append(Receipt(publisher, sequence, 0, 0, sent_s + 0.1))
                receipts += letters(one, taking, 0.3) if rejected(one) else []
            sent_s += source.choice([2.0, 4.0, 5.0])
            if sent_s > last_s:
                break
    connections = [(0.5, "connected")]
    lost = source.choice([0, 0, 1, 2, 3])
    for k in range(lost):
        connections += [(40.0 + 4 * k, "connection_lost"), (41.0 + 4 * k, "connected")]
    for _ in range(source.choice([0, 1, 1, 1, 2])):
        plant = source.choice(PLANTS)
        if _plant(source, plant, messages, receipts, taking):
            planted.append(plant)
    receipts.sort(key=lambda receipt: receipt.at_s)
    return Case(
        tuple(messages),
        tuple(receipts),
        tuple(connections),
        tuple(steps),
        tuple(aways),
        taking,
        at_least_once,
        limited,
        "quorum" if at_least_once else source.choice(["quorum", "quorum", "classic"]),
        source.choice(["3.10.8", "4.0.5", "4.3.0"]),
        source.choice([None, 2, 3]),
        "+".join(sorted(planted)) or "nothing",
    )


def letters(one: Message, taking: int, after_s: float, marked: bool = False) -> list[Receipt]:
    """Return the letters of a message as they are received."""
    times = range(1, taking + 1)
    return [Receipt(one.publisher, one.sequence, queue, queue, one.sent_s + after_s, marked) for queue in times]


def _plant(source: random.Random, plant: str, messages: list[Message], receipts: list[Receipt], taking: int) -> bool:
    asks = plant in ("drop", "twice", "twice_marked")
    fit = [
        m
        for m in messages
        if m.outcome == "confirmed" and rejected(m) == asks and m.sequence < 12 and is_untouched(m, receipts, taking)
    ]
    if not fit:
        return False
    one = source.choice(fit)
    mine = [r for r in receipts if (r.publisher, r.sequence) == (one.publisher, one.sequence)]
    if plant == "drop":
        receipts.remove(source.choice([r for r in mine if r.queue > 0]))
    elif plant in ("twice", "twice_marked"):
        again = source.choice([r for r in mine if r.queue > 0])
        receipts.append(replace(again, at_s=again.at_s + 0.5, marked=plant == "twice_marked"))
    elif plant == "unasked":
        receipts += letters(one, taking, 0.6)
    elif plant == "gave_up":
        receipts += letters(one, taking, 80 - one.sent_s)
    else:
        receipts.remove(mine[0])
        if plant == "never_came_letter":
            receipts += letters(one, taking, 0.6)
    return True


def is_untouched(one: Message, receipts: list[Receipt], taking: int) -> bool:
    """Whether nothing was planted with a message yet."""
    mine = [r.queue for r in receipts if (r.publisher, r.sequence) == (one.publisher, one.sequence)]
    return sorted(mine) == [0, *(range(1, taking + 1) if rejected(one) else ())]


def recorded(case: Case) -> History:
    """Return the history of a case."""
    names = ["q1", *[f"d{k + 1}" for k in range(case.taking)]]
    declared = event(
        0,
        "queues",
        queues={name: {"type": case.kind, "members": list(THREE), "leader": "a1"} for name in names},
        dead_letters={
            "queues": {"q1": names[1:]},
            "strategy": "at_least_once" if case.at_least_once else "at_most_once",
            "reject_one_in": ONE_IN,
            "limited": case.limited,
            "held_s": 0,
            "acks": "manual",
            "delivery_limit": case.delivery_limit,
        },
    )
    workers = [event(at_s, "worker", worker="consumer-0", event=what, node="a1") for at_s, what in case.connections]
    return made(case.messages, case.receipts, case.steps, case.aways, *workers, declared=declared, version=case.version)


def verdict(case: Case) -> str:
    """Return the verdict by the text."""
    begun = [step for step in case.steps if not step.skipped]
    became = 0
    for one in case.messages:
        came = [r for r in received(case, one) if r.queue == 0]
        # "owed for the messages that consumers received and rejected, and where queues have limits besides for those
        # that were confirmed and never came out of their queue"
        owed = bool(came) and rejected(one)
        owed = owed or (case.limited and one.outcome == "confirmed" and not came)
        became += owed
        for queue in range(1, case.taking + 1):
            as_letter = [r for r in received(case, one) if r.queue == queue]
            if owed and not as_letter and (case.at_least_once or not is_excused(case, one)):
                return "INVALID"
            again = pairwise([r for r in as_letter if not r.marked])
            if not case.at_least_once and not all(made_them_come_again(case, *both) for both in again):
                return "INVALID"
            if (
                as_letter
                and not case.limited
                and not (came and (rejected(one) or may_be_given_up(case, one, as_letter[0].at_s)))
            ):
                return "INVALID"
    as_letters_s = [r.at_s for r in case.receipts if r.queue > 0]
    if not became or not as_letters_s:
        return "UNKNOWN"
    faults_s = [step.start_s for step in begun if step.is_fault]
    return "VALID" if received_after_each(faults_s, as_letters_s) else "UNKNOWN"


def received(case: Case, one: Message) -> list[Receipt]:
    """Return what was received of a message, from any queue."""
    return [r for r in case.receipts if (r.publisher, r.sequence) == (one.publisher, one.sequence)]


def left_s(case: Case, one: Message) -> float:
    """Return when a message had left its queue: it came, or "a later message of its publisher did"."""
    came = [r.at_s for r in received(case, one) if r.queue == 0]
    later = [r.at_s for r in case.receipts if r.queue == 0 and r.publisher == one.publisher]
    behind = [
        r.at_s for r in case.receipts if (r.queue, r.publisher) == (0, one.publisher) and r.sequence > one.sequence
    ]
    return max(came) if came else min(behind, default=max([*later, 95.0]))


def disturbances(case: Case) -> list[tuple[float, float]]:
    """Return when brokers were disturbed; all of them have all queues."""
    spans = [(step.start_s, step.end_s) for step in case.steps if step.on_brokers]
    return spans + [(away.from_s, away.to_s) for away in case.aways]


def made_them_come_again(case: Case, first: Receipt, second: Receipt) -> bool:
    """Whether brokers were disturbed between two receipts, or until shortly before."""
    return any(start_s <= second.at_s and end_s + AGAIN_S >= first.at_s for start_s, end_s in disturbances(case))


def is_excused(case: Case, one: Message) -> bool:
    """Whether a step disturbed brokers between its sending and the time at which its letter must have been there."""
    return any(s.on_brokers and s.end_s >= one.sent_s and s.start_s <= left_s(case, one) + 5 for s in case.steps)


def is_rough(case: Case) -> bool:
    """Whether the text does not say if a step is near enough to a message whose letter is missing, or came twice."""
    for r in case.receipts if any("twice" in plant for plant in case.planted.split("+")) else ():
        if any(abs(r.at_s - start_s) < 1 or abs(r.at_s - end_s - AGAIN_S) < 1 for start_s, end_s in disturbances(case)):
            return True
    for one in case.messages:
        if len({r.queue for r in received(case, one)} - {0}) < case.taking:
            for s in case.steps:
                near = s.end_s + CLEAR_S > one.sent_s and s.start_s < left_s(case, one) + CLEAR_S
                if s.on_brokers and near and not (s.start_s <= one.sent_s <= s.end_s):
                    asks = rejected(one) or not any(r.queue == 0 for r in received(case, one))
                    if asks:
                        return True
    return False


def may_be_given_up(case: Case, one: Message, came_s: float) -> bool:
    """Whether quorum queues of 4.0 and later may have given a message up before its letter came."""
    if case.kind != "quorum" or case.version.startswith("3."):
        return False
    lost_s = [at_s for at_s, what in case.connections if what in ("connection_lost", "killed")]
    ends = sum(one.sent_s <= at_s <= came_s for at_s in lost_s)
    # "From 4.3 on what came back as brokers were cut apart does not count."
    counted = [s for s in case.steps if s.on_brokers]
    if case.version.startswith("4.3"):
        counted = [s for s in counted if s.name != "partition"]
    ends += sum(one.sent_s <= at_s <= came_s for step in counted for at_s in (step.start_s, step.end_s))
    return ends >= (case.delivery_limit or 20)


def found(case: Case) -> str:
    """Return the checker's answer."""
    return str(checked("dead_letters", recorded(case)).verdict)
