"""Judge the single active consumer by looking at each three deliveries."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from rabbitmq_resilience.checkers.verdict import History
from tests.invariants.literal import event
from tests.invariants.references.common import (
    OF_BROKERS,
    OF_CLIENTS,
    PUBLISHED_S,
    Away,
    Message,
    Receipt,
    Step,
    checked,
    drawn_steps,
    leader_samples,
    made,
    received_after_each,
)

PLANTS = ("nothing", "turns", "turns_unproven", "takes_over", "lost_and_back", "taken_after_loss", "taken_then_lost")
#: After a disturbance so much must have been noticed and mended for certain; nothing is planted before that is over.
SETTLED_S = 20.0
#: Between the start of a disturbance and its end and this, something is excused for certain.
FRESH_S = 2.0


@dataclass(frozen=True)
class Case:
    """A short history. ``connections``: (consumer, when, what happened to it)."""

    messages: tuple[Message, ...]
    receipts: tuple[Receipt, ...]
    connections: tuple[tuple[int, float, str], ...]
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    leads: tuple[tuple[float, str], ...]
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case in which what was planted is either in a disturbance or long after it."""
    while True:
        case = _drawn(source)
        if not is_rough(case):
            return case


def _drawn(source: random.Random) -> Case:
    steps, aways = drawn_steps(source, OF_BROKERS + OF_CLIENTS, 2)
    leads = ((float(source.randrange(10, 80)), "b1"),) if source.random() < 0.1 else ()
    last_s = source.choice([PUBLISHED_S] * 5 + [40.0])
    plant, from_s = source.choice(PLANTS), float(source.randrange(12, 80))
    messages, receipts = [], []
    connections = [(consumer, 0.5, what) for consumer in range(2) for what in ("started", "connected")]
    if plant in ("lost_and_back", "taken_after_loss"):
        connections += [(0, from_s - 0.5, "connection_lost"), (0, from_s + 0.5, "connected")]
    if plant == "taken_then_lost":
        connections += [(1, from_s + 7.5, "connection_lost"), (1, from_s + 8.5, "connected")]
    at_s = 1.0
    every_s = source.choice([2.0, 2.0, 3.0])
    for sequence in range(40):
        if at_s > last_s:
            break
        consumer, sent_s = 0, at_s
        since = int((at_s - from_s) // every_s)
        if plant == "turns" and 0 <= since < 4:
            consumer = 1 - since % 2
        elif plant == "turns_unproven" and 0 <= since < 4:
            # All of them were sent before the first of them was received.
            consumer, sent_s = 1 - since % 2, min(at_s, from_s - every_s - 0.5)
        elif (plant in ("takes_over", "taken_after_loss", "taken_then_lost") and since >= 0) or (
            plant == "lost_and_back" and 0 <= since < 2
        ):
            consumer = 1
        messages.append(Message(0, sequence, 0, max(0.5, sent_s), "confirmed"))
        receipts.append(Receipt(0, sequence, 0, consumer, at_s + 0.1))
        at_s += every_s
    planted = plant if {one.consumer for one in receipts} == {0, 1} else "nothing"
    return Case(tuple(messages), tuple(receipts), tuple(connections), steps, aways, leads, planted)


def recorded(case: Case) -> History:
    """Return the history of a case."""
    workers = [event(at_s, "worker", worker=f"consumer-{one}", event=what) for one, at_s, what in case.connections]
    return made(
        case.messages,
        case.receipts,
        case.steps,
        case.aways,
        *workers,
        *leader_samples(case.leads, ("q1",)),
        names=("q1",),
    )


def verdict(case: Case) -> str:
    """Return the verdict by the text."""
    seen = list(case.receipts)
    for i, one in enumerate(seen):
        for j in range(i + 1, len(seen)):
            for k in range(j + 1, len(seen)):
                if is_broken(case, one, seen[j], seen[k]):
                    return "INVALID"
    begun_s = [step.start_s for step in case.steps if step.is_fault]
    if not received_after_each(begun_s, [one.at_s for one in seen]) or not seen:
        return "UNKNOWN"
    mended_s = max([end_s + SETTLED_S for _, end_s in disturbances(case)], default=0)
    if not any(one.at_s >= mended_s for one in seen):
        return "UNKNOWN"
    for one, other in pairwise(seen):
        is_allowed = is_excused(case, one.at_s, other.at_s) or has_lost(case, one.consumer, one.at_s, other.at_s)
        if one.consumer != other.consumer and not is_allowed:
            return "UNKNOWN"
    return "VALID"


def is_broken(case: Case, first: Receipt, second: Receipt, third: Receipt) -> bool:
    """Whether a consumer was active, was not, and was again over the same connection, with nothing to excuse it."""
    if first.consumer != third.consumer or first.consumer == second.consumer:
        return False
    if sent_s(case, second) <= first.at_s or sent_s(case, third) <= second.at_s:
        return False
    if has_lost(case, first.consumer, first.at_s, third.at_s):
        return False
    return not is_excused(case, first.at_s, second.at_s)  # the third one proves only that it had been registered


def sent_s(case: Case, receipt: Receipt) -> float:
    """Return when a message was sent."""
    return next(m.sent_s for m in case.messages if m.sequence == receipt.sequence)


def has_lost(case: Case, consumer: int, from_s: float, to_s: float) -> bool:
    """Whether a consumer lost its connection between two moments."""
    ends = [at_s for one, at_s, what in case.connections if one == consumer and what in ("connection_lost", "killed")]
    return any(from_s <= at_s <= to_s for at_s in ends)


def disturbances(case: Case) -> list[tuple[float, float]]:
    """Return when brokers may have lost each other, or the queue got another leader."""
    times = [(step.start_s, step.end_s) for step in case.steps if step.on_brokers]
    times += [(away.from_s, away.to_s) for away in case.aways]
    return times + [(at_s - 1, at_s) for at_s, _ in case.leads]


def is_excused(case: Case, from_s: float, to_s: float) -> bool:
    """Whether a disturbance was on, or not yet mended, in any part of a time."""
    return any(start_s <= to_s and from_s < end_s + SETTLED_S for start_s, end_s in disturbances(case))


def is_rough(case: Case) -> bool:
    """Whether a change of consumers, or the last delivery, is neither in a disturbance nor long after it."""
    seen = case.receipts
    looked_s = [seen[-1].at_s] if seen else []
    changes = [(a.at_s, b.at_s) for a, b in pairwise(seen) if a.consumer != b.consumer]
    for start_s, end_s in disturbances(case):
        if any(end_s + FRESH_S < at_s < end_s + SETTLED_S + 5 for at_s in looked_s):
            return True
        for before_s, after_s in changes:
            if end_s + FRESH_S < after_s and before_s < end_s + SETTLED_S + 5:
                return True
            if start_s - FRESH_S < after_s and before_s < start_s:
                return True
    return False


def found(case: Case) -> str:
    """Return the checker's answer."""
    return str(checked("single_active_consumer", recorded(case)).verdict)
