"""Judge what a tap saw of an application by looking at each row, each message and each moment."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from rabbitmq_resilience.tap.wire_history import Mode, Row
from tests.invariants.literal import us
from tests.invariants.references.application_converted import Answer, found
from tests.invariants.references.application_played import (
    DRAIN_S,
    DRAINED_S,
    HEALED_S,
    KNOWN_S,
    PLACES,
    PROCESSES,
    SKIPPED,
    WITHIN_S,
    Case,
    generated,
    reached_by,
)
from tests.invariants.references.application_rows import ENDS, Got, Sent, gone_of, got_of, sent_of
from tests.invariants.references.application_said import committed_verdict, order_verdict

__all__ = ["found", "generated", "verdict"]


def owed_of(case: Case, row: Row) -> list[str]:
    """Return the queues in which a message must be looked for."""
    return [name for name in reached_by((row.place, row.routing_key)) if name in PLACES and name not in gone_of(case)]


def firsts_of(got: Sequence[Got]) -> list[Got]:
    """Return the deliveries of equal messages from one queue that are no repeats of one that was not acknowledged."""
    firsts: list[Got] = []
    repeated: set[int] = set()
    for number, one in enumerate(got):
        channel = one.row.connection, one.row.session
        for other, earlier in enumerate(got[:number]) if one.row.flag else ():
            elsewhere = (earlier.row.connection, earlier.row.session) != channel
            if other not in repeated and (earlier.requeued or (not earlier.settled and elsewhere)):
                repeated.add(other)
                break
        else:
            firsts.append(one)
    return firsts


def matched_of(firsts: Sequence[Got], sent: Sequence[Sent]) -> int:
    """Return for how many messages at most there is a delivery after it: as one looks for a marriage."""
    taken: dict[int, int] = {}

    def finds(message: int, tried: set[int]) -> bool:
        for number, one in enumerate(firsts):
            if one.row.t_us >= sent[message].row.t_us and number not in tried:
                tried.add(number)
                if number not in taken or finds(taken[number], tried):
                    taken[number] = message
                    return True
        return False

    return sum(finds(message, set()) for message in range(len(sent)))


def is_in_time(sent: Sent) -> bool:
    return us(KNOWN_S) <= sent.row.t_us < us(DRAINED_S)


def verdict(case: Case) -> Answer:
    """Return the answer by the definitions."""
    sent, got = sent_of(case), got_of(case)
    kept = [one for one in sent if owed_of(case, one.row)]
    groups: dict[tuple[int, int, str], tuple[list[Sent], list[Got]]] = {}
    for one in kept:
        for queue in owed_of(case, one.row):
            groups.setdefault((one.row.identity, one.row.body, queue), ([], []))[0].append(one)
    known = {(identity, queue) for identity, _, queue in groups}
    damaged: list[Got] = []
    by_consumer = dict.fromkeys(PROCESSES, 0)
    for delivery in got:
        key = delivery.row.identity, delivery.row.body, delivery.row.place
        if key in groups:
            first_us = min(one.row.t_us for one in groups[key][0])
            if delivery.row.t_us >= first_us:
                groups[key][1].append(delivery)
                by_consumer[delivery.process] += 1
        elif (delivery.row.identity, delivery.row.place) in known:
            damaged.append(delivery)
            by_consumer[delivery.process] += 1
    lost = 0
    for messages, deliveries in groups.values():
        owed = [one for one in messages if one.outcome == "confirmed" and is_in_time(one) and not one.row.expires]
        missing = len(owed) - matched_of(firsts_of(deliveries), owed)
        its = owed_of(case, messages[0].row)
        all_came = all(groups[messages[0].row.identity, messages[0].row.body, queue][1] for queue in its)
        lost += 0 if messages[0].row.named and all_came else missing
    waited = [one for one in got if one.row.mode is not Mode.AUTOMATIC]
    numbers = (
        len(got),
        len(got) - len(waited),
        sum(one.settled for one in waited),
        sum(one.back for one in waited),
        sum(not one.settled and not one.back for one in waited),
    )
    verdicts = {"settled": "UNKNOWN" if not waited else "INVALID" if numbers[4] else "VALID"}
    ended = [what for _, _, what, _ in case.own if what == "ended"]
    verdicts["stays_up"] = "INVALID" if ended else "VALID"
    verdicts["consumers"] = consumers_verdict(case)
    matched = [one for _, deliveries in groups.values() for one in deliveries]
    verdicts["committed"], work = committed_verdict(case, sent)
    verdicts["order"], order = order_verdict(case, sent, got)
    verdicts["reconnects"] = reconnects_verdict(case, kept, matched + damaged)
    outcomes = [one.outcome for one in kept]
    return Answer(
        lost,
        len(damaged),
        (outcomes.count("nacked"), outcomes.count("returned")),
        tuple(sorted(verdicts.items())),
        numbers,
        work,
        order,
        tuple(sorted((name, count) for name, count in by_consumer.items() if count)),
    )


def sessions_of(case: Case) -> list[tuple[str, str, float, float]]:
    """Return (process, queue, from, to) of each consumer; the queue of a connection itself is empty."""
    process_of = {number: fields["process"] for _, number, what, _, fields in case.wire if what == "opened"}
    found = []
    for from_s, connection, what, _, fields in case.wire:
        ends = ENDS if what == "consuming" else ENDS - {"channel_closed"}
        ended = [at_s for at_s, other, how, _, _ in case.wire if other == connection and how in ends]
        if what in {"consuming", "connected"}:
            found.append((process_of[connection], fields.get("queue", ""), from_s, min(ended, default=math.inf)))
    return found


def consumers_of(case: Case, queue: str, at_s: float) -> int:
    """Return how many consumers a queue had at a moment."""
    return sum(name == queue and from_s <= at_s < to_s for _, name, from_s, to_s in sessions_of(case))


def due_of(case: Case) -> float:
    """Return when all must be back: so long after the first look, two in a second, that found all nodes up. It lies
    after the drain's begin if no look did before that."""
    looks_s = [half / 2 for half in range(180) if half / 2 >= HEALED_S]
    found_s = [at_s for at_s in looks_s if case.up_s is not None and at_s >= case.up_s]
    return min(found_s, default=DRAIN_S) + WITHIN_S


def reconnects_verdict(case: Case, kept: Sequence[Sent], got: Sequence[Got]) -> str:
    """Return whether each process publishes and consumes again."""
    until_s, answers = due_of(case), []
    sessions = sessions_of(case)
    for process in PROCESSES:
        sent_s = sorted((one.row.t_us - us(0)) / 1e6 for one in kept if one.process == process)
        got_s = sorted((one.row.t_us - us(0)) / 1e6 for one in got if one.process == process)
        before_s = [at_s for at_s in sent_s if 0 <= at_s < 10]
        consumed = any(0 <= at_s < 10 for at_s in got_s)
        own = [(queue, from_s, to_s) for name, queue, from_s, to_s in sessions if name == process]
        subscribed = any(queue and from_s <= until_s < to_s for queue, from_s, to_s in own)
        if before_s:
            pauses = [b - a for a, b in itertools.pairwise([0.0, *before_s, 10.0])]
            may_wait = max(pauses) > 2 or (consumed and subscribed and not any(at_s >= HEALED_S for at_s in got_s))
            answers.append(answer_of([at_s for at_s in sent_s if at_s >= HEALED_S], until_s, may_wait=may_wait))
        if consumed:
            ever = any(queue and from_s < 10 for queue, from_s, _ in own)
            connected = any(not queue and from_s <= until_s < to_s for queue, from_s, to_s in own)
            again_s = [at_s for at_s in got_s if at_s >= HEALED_S] + [HEALED_S] * subscribed
            answers.append(answer_of(again_s, until_s, may_wait=not ever and connected))
    if "INVALID" in answers:
        return "UNKNOWN" if until_s > DRAIN_S else "INVALID"
    return "VALID" if set(answers) == {"VALID"} else "UNKNOWN"


def answer_of(again_s: Sequence[float], until_s: float, *, may_wait: bool) -> str:
    """Return whether a process did something again, in time or, if it ``may_wait``, at all."""
    if any(at_s <= until_s or may_wait for at_s in again_s):
        return "VALID"
    return "UNKNOWN" if may_wait else "INVALID"


def consumers_verdict(case: Case) -> str:
    """Return whether each queue has its consumers again: when they are due, and before the drain."""
    with_consumers = {number for _, number, what, _, _ in case.wire if what == "consuming"}
    ends_s = [at_s for at_s, number, what, _, _ in case.wire if what in ENDS and number in with_consumers]
    moments = [10.0, *(at_s for at_s in ends_s if 0.0 <= at_s < 10.0)]
    passing = {*SKIPPED, *gone_of(case)}
    wanted = {
        queue: min(consumers_of(case, queue, at_s) for at_s in moments) for queue in PLACES if queue not in passing
    }
    wanted = {queue: count for queue, count in wanted.items() if count}
    if not wanted:
        return "UNKNOWN"
    late = any(
        consumers_of(case, queue, at_s) < count
        for queue, count in wanted.items()
        for at_s in (min(due_of(case), DRAIN_S - 1e-6), DRAIN_S - 1e-6)
    )
    if not late:
        return "VALID"
    return "UNKNOWN" if due_of(case) > DRAIN_S else "INVALID"
