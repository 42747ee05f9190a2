"""Judge order by looking at each pair of deliveries."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rabbitmq_resilience.checkers.verdict import History
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
    made,
    received_after_each,
)

PLANTS = ("nothing", "swap", "swap_marked", "swap_duplicate", "swap_unknown", "swap_publishers")


@dataclass(frozen=True)
class Case:
    """A short history, and what was planted in it."""

    messages: tuple[Message, ...]
    receipts: tuple[Receipt, ...]
    steps: tuple[Step, ...]
    aways: tuple[Away, ...]
    shared: str
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case."""
    queues, publishers = source.choice([1, 2, 2]), source.choice([1, 2, 3])
    steps, aways = drawn_steps(source, OF_BROKERS + OF_CLIENTS)
    last_s = source.choice([PUBLISHED_S] * 6 + [15.0, 40.0])
    messages, receipts = [], []
    consumers = source.choice(["one", "one", "one", "turns", "mixed", "mixed_one_queue"])
    handed_s = source.randrange(20, 60) + 0.25
    for publisher in range(publishers):
        at_s = source.randrange(0, 4) + publisher / 10
        for sequence in range(source.randrange(2, 40 // publishers)):
            at_s += source.choice([0.5, 1, 2, 4])
            if at_s > last_s:
                break
            queue = (publisher + (sequence if source.random() < 0.2 else 0)) % queues
            outcome = source.choice(["confirmed"] * 8 + ["unknown", "nacked", "returned"])
            messages.append(Message(publisher, sequence, queue, at_s, outcome))
            if outcome not in ("nacked", "returned") or source.random() < 0.3:
                consumer = 10 * queue
                if consumers == "turns":
                    consumer += at_s + 0.1 > handed_s
                elif consumers == "mixed" or (consumers == "mixed_one_queue" and queue == 0):
                    consumer += source.randrange(2)
                receipts.append(Receipt(publisher, sequence, queue, consumer, at_s + 0.1))
    receipts.sort(key=lambda one: one.at_s)
    plants = []
    for _ in range(source.choice([0, 1, 1, 2])):
        plant = source.choice(PLANTS)
        if plant != "nothing" and plant_in(source, plant, messages, receipts):
            plants.append(plant)
    shared = "judged" if source.random() < 0.2 else "named"
    planted = "+".join([consumers, shared, *sorted(plants)])
    return Case(tuple(messages), tuple(receipts), steps, aways, shared, planted)


def plant_in(source: random.Random, plant: str, messages: list[Message], receipts: list[Receipt]) -> bool:
    """Exchange two messages that one consumer received, where there are such."""
    pairs = []
    for i, one in enumerate(receipts):
        for j in range(i + 1, min(i + 8, len(receipts))):
            other = receipts[j]
            same = one.publisher == other.publisher
            if one.queue == other.queue and same == (plant != "swap_publishers"):
                pairs.append((i, j))
    if not pairs:
        return False
    i, j = source.choice(pairs)
    one, other = receipts[i], receipts[j]
    late = Receipt(one.publisher, one.sequence, one.queue, other.consumer, other.at_s, plant == "swap_marked")
    early = Receipt(other.publisher, other.sequence, other.queue, one.consumer, one.at_s)
    if plant == "swap_duplicate":
        # What came once comes again, after the other one; nothing is exchanged.
        receipts.append(Receipt(one.publisher, one.sequence, one.queue, other.consumer, other.at_s + 0.05))
    else:
        receipts[i], receipts[j] = early, late
    if plant == "swap_unknown":
        for k, message in enumerate(messages):
            if (message.publisher, message.sequence) == (one.publisher, one.sequence):
                messages[k] = Message(message.publisher, message.sequence, message.queue, message.sent_s, "unknown")
    receipts.sort(key=lambda receipt: receipt.at_s)
    return True


def recorded(case: Case) -> History:
    """Return the history of a case."""
    return made(case.messages, case.receipts, case.steps, case.aways)


def verdict(case: Case) -> str:
    """Return the verdict by the text: "Messages of one publisher in one queue arrive in order"."""
    judged = [queue for queue in (0, 1) if case.shared == "judged" or is_read_by_one(case, queue)]
    seen = [receipt for receipt in case.receipts if receipt.queue in judged]
    for late in seen:
        if late.marked or outcome_of(case, late) != "confirmed":
            continue
        earlier = [one for one in seen if one.queue == late.queue and one.at_s < late.at_s]
        earlier = [one for one in earlier if one.publisher == late.publisher]
        if any(one.sequence == late.sequence for one in earlier):
            continue
        if any(one.sequence > late.sequence for one in earlier):
            return "INVALID"
    if case.receipts and not seen:
        return "UNKNOWN"
    begun_s = [step.start_s for step in case.steps if step.is_fault]
    return "VALID" if received_after_each(begun_s, [one.at_s for one in seen]) else "UNKNOWN"


def is_read_by_one(case: Case, queue: int) -> bool:
    """Whether at most one consumer at a time read from a queue, and something was received from it."""
    spans = []
    for consumer in sorted({one.consumer for one in case.receipts if one.queue == queue}):
        times_s = [one.at_s for one in case.receipts if (one.queue, one.consumer) == (queue, consumer)]
        spans.append((min(times_s), max(times_s)))
    return all(a is b or a[1] < b[0] or b[1] < a[0] for a in spans for b in spans)


def outcome_of(case: Case, receipt: Receipt) -> str:
    """Return what became of the publish of what was received."""
    for message in case.messages:
        if (message.publisher, message.sequence) == (receipt.publisher, receipt.sequence):
            return message.outcome
    return "never_sent"


def found(case: Case) -> str:
    """Return the checker's answer."""
    return str(checked("order", recorded(case), shared_queues=case.shared).verdict)
