"""Judge losses and unmarked duplicates by looking at each message and each moment."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from rabbitmq_resilience.checkers.verdict import History
from tests.invariants.literal import queues
from tests.invariants.references.common import (
    DAMAGE,
    LOSE,
    NODES,
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

PLANTS = (
    "loss",
    "stranger",
    "other_queue",
    "never_sent",
    "damaged",
    "again",
    "again",
    "again_marked",
    "again",
    "thrice",
)
#: "Shortly before" is no number: no duplicate is drawn whose first receipt is so soon after a disturbance.
ROUGH_S = 16.0
#: Confirms come this long after their messages were sent.
CONFIRMED_AFTER_S = 0.005
Answer = tuple[str, int]


@dataclass(frozen=True)
class Case:
    """A short history. ``leads``: which node leads all queues from when on, if that changes."""

    messages: tuple[Message, ...]
    receipts: tuple[Receipt, ...]
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    leads: tuple[tuple[float, str], ...]
    planted: str
    kind: str = "quorum"

    @property
    def members(self) -> tuple[str, ...]:
        """The nodes with a copy of the queues: of classic ones there is one."""
        return NODES if self.kind == "quorum" else NODES[:1]


def generated(source: random.Random) -> Case:
    """Draw a case in which no duplicate is near the edge of a disturbance."""
    while True:
        case = _drawn(source)
        if not any(is_rough(case, first, second) for first, second in repeats(case)):
            return case


def _drawn(source: random.Random) -> Case:
    steps, aways = drawn_steps(source, (*OF_BROKERS, *OF_CLIENTS * 2, *[DAMAGE] * 2, LOSE))
    kind = source.choice(["quorum", "quorum", "classic"])
    away_us = [(step.start_s, step.end_s) for step in steps if step.name in (DAMAGE, LOSE)]
    if not aways and source.random() < 0.25:
        from_s = float(source.randrange(12, 70))
        aways = (
            Away(source.choice(NODES), from_s, from_s + source.choice([1, 2, 5]), source.choice(["down", "paused"])),
        )
    moves = kind == "quorum" and source.random() < 0.2
    leads = ((float(source.randrange(10, 80)), "b1"),) if moves else ()
    last_s = source.choice([PUBLISHED_S] * 5 + [30.0])
    messages, receipts, planted = [], [], []
    for publisher in range(source.choice([1, 2])):
        at_s, sequence = float(source.randrange(0, 3)) + publisher / 10, 0
        while (at_s := at_s + source.choice([1, 2, 4, 6])) < last_s and sequence < 20:
            if any(start_s - 1 < at_s < end_s + 1 for start_s, end_s in away_us) and source.random() < 0.7:
                continue  # so that often nothing is confirmed in that time
            outcome = source.choice(["confirmed"] * 8 + ["unknown", "nacked", "returned"])
            messages.append(Message(publisher, sequence, publisher, at_s, outcome))
            if outcome == "confirmed" or source.random() < 0.4:
                receipts.append(Receipt(publisher, sequence, publisher, publisher, at_s + 0.1))
            sequence += 1
    for _ in range(source.choice([0, 1, 1, 2])):
        if receipts:
            plant = source.choice(PLANTS)
            planted.append(plant)
            _plant(source, plant, messages, receipts)
    receipts.sort(key=lambda one: one.at_s)
    return Case(tuple(messages), tuple(receipts), steps, aways, leads, "+".join(sorted(planted)) or "nothing", kind)


def _plant(source: random.Random, plant: str, messages: list[Message], receipts: list[Receipt]) -> None:
    one = source.choice(receipts)
    later_s = one.at_s + source.choice([0.5, 2, 5, 20, 40])
    if plant == "loss":
        receipts.remove(one)
    elif plant == "stranger":
        receipts.append(replace(one, sequence=90 + source.randrange(9)))
    elif plant == "other_queue":
        receipts.append(replace(one, queue=1 - one.queue, consumer=1 - one.consumer, at_s=one.at_s + 0.2))
    elif plant == "never_sent":
        messages.append(Message(one.publisher, 60, one.queue, one.at_s, "never_sent"))
        receipts.append(replace(one, sequence=60, at_s=one.at_s + 0.2))
    elif plant == "damaged":
        receipts.append(replace(one, intact=False, at_s=one.at_s + 0.2))
    elif later_s < 92:
        receipts.append(replace(one, at_s=later_s, marked=plant == "again_marked"))
        if plant == "thrice":
            receipts.append(replace(one, at_s=later_s + 0.3, marked=source.random() < 0.5))


def recorded(case: Case) -> History:
    """Return the history of a case."""
    declared = queues("q1", "q2", kind=case.kind, members=case.members)
    return made(case.messages, case.receipts, case.steps, case.aways, *leader_samples(case.leads), declared=declared)


def verdict(case: Case) -> Answer:
    """Return the verdict, and how many unmarked duplicates nothing explains."""
    forbidden = sum(not is_disturbed(case, first, second) for first, second in repeats(case))
    missing = [m for m in case.messages if m.outcome == "confirmed" and not came(case, m)]
    lost = [m for m in missing if not may_be_lost(case, m)]
    unexpected = [receipt for receipt in case.receipts if not receipt.intact or not was_attempted(case, receipt)]
    if lost or unexpected or forbidden:
        return "INVALID", forbidden
    if missing:
        return "VALID", forbidden
    begun_s = [step.start_s for step in case.steps if step.is_fault]
    is_known = case.receipts and received_after_each(begun_s, [one.at_s for one in case.receipts])
    is_judged = any(m.outcome == "confirmed" for m in case.messages)  # nothing else is demanded to arrive
    return ("VALID" if is_judged and (is_known or not begun_s) else "UNKNOWN"), forbidden


def came(case: Case, message: Message) -> bool:
    """Whether a message arrived, whole and from its queue."""
    whole = [(one.publisher, one.sequence, one.queue) for one in case.receipts if one.intact]
    return (message.publisher, message.sequence, message.queue) in whole


def may_be_lost(case: Case, message: Message) -> bool:
    """Whether a file of the message's queue was damaged or lost after it was sent, and no majority of whole copies is
    known to have the message."""
    steps = [step for step in case.steps if not step.skipped and step.node in case.members]
    damages = [step for step in steps if step.name in (DAMAGE, LOSE)]
    others = "classic" if case.kind == "quorum" else "quorum"
    damages = [step for step in damages if step.of_type != others]
    for step in damages:
        if message.sent_s < back_s(case, step):
            before = [one for one in damages if one.start_s < step.start_s and one.node != step.node]
            earlier = [one for one in before if one.name == DAMAGE]
            later = [
                m
                for m in case.messages
                if m.queue == message.queue
                and m.outcome == "confirmed"
                and step.start_s <= m.sent_s
                and m.sent_s + CONFIRMED_AFTER_S < step.end_s
            ]
            if case.kind == "classic" or earlier or not later:
                return True
    return False


def back_s(case: Case, step: Step) -> float:
    """When the step's node was first seen up after the step had ended."""
    at_s = math.ceil(step.end_s * 2) / 2
    while any(one.node == step.node and one.from_s <= at_s < one.to_s for one in case.aways):
        at_s += 0.5
    return at_s


def was_attempted(case: Case, receipt: Receipt) -> bool:
    """Whether what was received had been sent to that queue."""
    sent = [(m.publisher, m.sequence, m.queue) for m in case.messages if m.outcome != "never_sent"]
    return (receipt.publisher, receipt.sequence, receipt.queue) in sent


def repeats(case: Case) -> list[tuple[Receipt, Receipt]]:
    """Return each unmarked receipt of a message that had come so before from that queue, with the last such receipt."""
    pairs: list[tuple[Receipt, Receipt]] = []
    unmarked: list[Receipt] = []
    for receipt in case.receipts:
        if receipt.marked or not receipt.intact or not was_attempted(case, receipt):
            continue
        key = (receipt.publisher, receipt.sequence, receipt.queue)
        before = [one for one in unmarked if (one.publisher, one.sequence, one.queue) == key]
        if before:
            pairs.append((before[-1], receipt))
        unmarked.append(receipt)
    return pairs


def disturbances(case: Case) -> list[tuple[float, float]]:
    """Return when the brokers of the queues were disturbed.

    A cut of any node acts on links to all others. A queue with one copy has no other node to which a leader could move.
    """
    on_all = ("partition", "rebalance") if len(case.members) > 1 else ("partition",)
    times = [
        (step.start_s, step.end_s)
        for step in case.steps
        if step.on_brokers and (step.name in on_all or (step.name != "rebalance" and step.node in case.members))
    ]
    times += [(away.from_s, away.to_s) for away in case.aways if away.node in case.members]
    return times + [(at_s - 1, at_s) for at_s, _ in case.leads]


def is_disturbed(case: Case, first: Receipt, second: Receipt) -> bool:
    """Whether brokers were disturbed between two receipts, or until shortly before."""
    return any(start_s <= second.at_s and end_s >= first.at_s - 1 for start_s, end_s in disturbances(case))


def is_rough(case: Case, first: Receipt, second: Receipt) -> bool:
    """Whether the text does not say if a disturbance is near enough."""
    for start_s, end_s in disturbances(case):
        if first.at_s - ROUGH_S < end_s + 0.5 and end_s < first.at_s + 1 and start_s <= second.at_s:
            return True
        if second.at_s - 1 <= start_s <= second.at_s + 1:
            return True
    return False


def found(case: Case) -> Answer:
    """Return the checker's answer."""
    finding = checked("no_loss", recorded(case))
    return str(finding.verdict), int(finding.numbers.get("duplicates_forbidden", 0))
