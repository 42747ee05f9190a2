"""Judge what a tap saw of an application by looking at each row, each message and each moment."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from rabbitmq_resilience.tap.wire_history import Mode, Row
from tests.invariants.literal import us
from tests.invariants.references.application_converted import Answer, found
from tests.invariants.references.application_played import (
    DRAIN_S,
    DRAINED_S,
    FAULT_S,
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


class Due(NamedTuple):
    """Since when all nodes were up, until when what is there is in time, and from when on what is missing is late. If
    that is not known, the last lies behind the drain."""

    up_s: float
    sure_s: float
    late_s: float

    @property
    def is_known(self) -> bool:
        return self.sure_s == self.late_s


def due_of(case: Case) -> Due:
    """Return when all must be back: so long after the first of the looks, two in a second, since which all nodes were
    up until the drain. It is not known if no look found that, or none was made for more than 6 s."""
    not_known = Due(HEALED_S, HEALED_S + WITHIN_S, DRAIN_S + WITHIN_S)
    moments = [half / 2 for half in range(int(2 * DRAIN_S))]
    seen_s = [at_s for at_s in moments if not case.unseen[0] <= at_s < case.unseen[1]]
    looks_s = [at_s for at_s in seen_s if at_s >= HEALED_S]
    before_s = max(at_s for at_s in seen_s if at_s <= HEALED_S)
    for first_s in [before_s, *looks_s]:
        later_s = [first_s, *(at_s for at_s in looks_s if at_s >= first_s)]
        if not any(from_s <= at_s < to_s for at_s in later_s for from_s, to_s in case.away):
            up_s = max(first_s, HEALED_S)
            last_s = min(up_s + WITHIN_S, DRAIN_S)
            seen_s = [HEALED_S, *(at_s for at_s in looks_s if at_s < last_s), last_s]
            is_seen = all(after - before <= 6 for before, after in itertools.pairwise(seen_s))
            return Due(up_s, up_s + WITHIN_S, up_s + WITHIN_S) if is_seen else not_known
    return not_known


def losses_of(case: Case, process: str) -> list[float]:
    """Return when a process lost a connection: it ended, and not as the client had asked for."""
    own = {number for _, number, what, _, fields in case.wire if what == "opened" and fields["process"] == process}
    connected = {number for _, number, what, _, _ in case.wire if what == "connected"}
    found = []
    for number in own & connected:
        at_s, _, what, _, fields = next(
            (event for event in case.wire if event[1] == number and event[2] in ENDS - {"channel_closed"}),
            (math.inf, number, "", 0, {}),
        )
        if what != "connection_closed" or fields["by"] == "broker":
            found.append(at_s)
    return found


def reconnects_verdict(case: Case, kept: Sequence[Sent], got: Sequence[Got]) -> str:
    """Return whether each process publishes and consumes again, and still did when it last lost a connection."""
    due, answers = due_of(case), []
    sessions = sessions_of(case)
    seen_s = min(due.late_s, DRAIN_S - 1e-6)
    for process in PROCESSES:
        sent_s = sorted((one.row.t_us - us(0)) / 1e6 for one in kept if one.process == process)
        got_s = sorted((one.row.t_us - us(0)) / 1e6 for one in got if one.process == process)
        before_s = [at_s for at_s in sent_s if 0 <= at_s < 10]
        consumed = any(0 <= at_s < 10 for at_s in got_s)
        own = [(queue, from_s, to_s) for name, queue, from_s, to_s in sessions if name == process]
        subscribed = any(queue and from_s <= seen_s < to_s for queue, from_s, to_s in own)
        lost_s = losses_of(case, process)
        if before_s:
            pauses = [b - a for a, b in itertools.pairwise([0.0, *before_s, 10.0])]
            may_wait = max(pauses) > 2 or (consumed and subscribed and not any(at_s >= due.up_s for at_s in got_s))
            again_s = [at_s for at_s in sent_s if at_s >= due.up_s]
            kept_s = [(max(from_s, due.up_s), to_s) for queue, from_s, to_s in own if queue and consumed]
            sent_later = [(at_s, at_s) for at_s in again_s]
            gone = any(
                is_gone(sent_later + (kept_s if may_be_idle(lost, again_s, got_s) else []), [lost], again_s)
                for lost in lost_s
            )
            answers.append(answer_of(again_s, due, gone=gone, may_wait=may_wait))
        if consumed:
            ever = any(queue and from_s < 10 for queue, from_s, _ in own)
            connected = any(not queue and from_s <= seen_s < to_s for queue, from_s, to_s in own)
            again_s = [at_s for at_s in got_s if at_s >= due.up_s]
            kept_s = [(max(from_s, due.up_s), to_s) for queue, from_s, to_s in own if queue and to_s > due.up_s]
            did_s = [(at_s, at_s) for at_s in again_s] + kept_s
            gone = is_gone(did_s, lost_s, [from_s for from_s, _ in did_s])
            first_s = [max(from_s, due.up_s) for queue, from_s, to_s in own if queue and from_s <= seen_s < to_s]
            answers.append(answer_of(again_s + first_s, due, gone=gone, may_wait=not ever and connected))
    for answer in ("INVALID", "UNKNOWN"):
        if answer in answers:
            return answer
    return "VALID" if answers else "UNKNOWN"


def may_be_idle(lost_s: float, sent_s: Sequence[float], got_s: Sequence[float]) -> bool:
    """Return whether a process that answers may have had nothing to answer after a lost connection, or no time."""
    sent = any(lost_s < at_s < DRAIN_S for at_s in sent_s)
    first_s = min((at_s for at_s in got_s if lost_s < at_s < DRAIN_S), default=math.inf)
    return sent or first_s + WITHIN_S > DRAIN_S


def is_gone(again_s: Sequence[tuple[float, float]], lost_s: Sequence[float], began_s: Sequence[float]) -> bool:
    """Return whether nothing came in time after a lost connection, though there was time for it before the drain.
    ``again_s``: from when to when it did something. ``began_s``: when it did so."""
    first_s = min((at_s for at_s in began_s if at_s < DRAIN_S), default=math.inf)
    return any(
        not any(to_s > at_s and from_s <= at_s + WITHIN_S for from_s, to_s in again_s)
        for at_s in lost_s
        if first_s <= at_s <= DRAIN_S - WITHIN_S
    )


def answer_of(again_s: Sequence[float], due: Due, *, gone: bool, may_wait: bool) -> str:
    """Return whether a process did something again, in time or, if it ``may_wait``, at all."""
    if not gone and any(at_s <= due.sure_s or may_wait for at_s in again_s):
        return "VALID"
    sure = due.is_known and (gone or due.late_s <= DRAIN_S)
    return "INVALID" if sure and not may_wait else "UNKNOWN"


def consumers_verdict(case: Case) -> str:
    """Return whether each queue that was not deleted has its consumers again: when they are due, and before the
    drain."""
    with_consumers = {number for _, number, what, _, _ in case.wire if what == "consuming"}
    ends_s = [at_s for at_s, number, what, _, _ in case.wire if what in ENDS and number in with_consumers]
    moments = [FAULT_S, *(at_s for at_s in ends_s if 0.0 <= at_s < FAULT_S)]
    deleted = {fields["queue"] for _, _, what, _, fields in case.wire if what == "queue_deleted"}
    listed = {*PLACES, *SKIPPED} - deleted
    wanted = {queue: min(consumers_of(case, queue, at_s) for at_s in moments) for queue in sorted(listed)}
    wanted = {queue: count for queue, count in wanted.items() if count}
    if not wanted:
        return "UNKNOWN"
    late = any(
        consumers_of(case, queue, at_s) < count
        for queue, count in wanted.items()
        for at_s in (min(due_of(case).sure_s, DRAIN_S - 1e-6), DRAIN_S - 1e-6)
    )
    if not late:
        return "VALID"
    return "UNKNOWN" if due_of(case).late_s > DRAIN_S else "INVALID"
