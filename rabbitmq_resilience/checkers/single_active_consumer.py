"""Check that one consumer of a queue at a time receives messages, and keeps doing so while it is connected."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rabbitmq_resilience.checkers.columns import grouped
from rabbitmq_resilience.checkers.consumer_sessions import (
    ConsumerSession,
    Delivery,
    Rows,
    Stints,
    connection_ends,
    rows_of,
    stints_of,
)
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.instability import SETTLED_WITHIN_S, Calm, calm_of
from rabbitmq_resilience.checkers.machine_load import OTHERS_CPU_MIN, looks_of, others_cpu
from rabbitmq_resilience.checkers.message_ledger import ledger_of, nothing_after
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.model.durations import TICKS_MIN

#: The broker and the client each drop a silent connection by their own heartbeats, within this time.
NOTICED_WITHIN_S = 30.0
#: A consumer that stops in an orderly way reports that at once, or closes its connection after a moment.
STOPPED_WITHIN_S = 5.0
_SECOND_US = 1_000_000


class SingleActiveConsumer(InvariantSpec):
    """One consumer of a queue is active at a time. This is broken if a consumer received a message, then another
    consumer received a message that was sent only after that, and then the first consumer received, *over the same
    connection*, a message that was sent only after that again. The first consumer was registered all the time; so it
    was active, was not, and was again. But the broker replaces an active consumer only when it is gone (RabbitMQ,
    "Consumers", single active consumer). The times of sending make this sure: messages that a replaced consumer
    receives late, as they were under way to it, were sent before.

    Brokers that may have the queue, or to which consumers are connected, may lose each other, or the queue may get
    another leader. Then a consumer that is still connected may be replaced. So nothing is demanded from such a
    disturbance on until it must have been noticed and mended. If a queue has no message received after that, the
    verdict is UNKNOWN; so the load goes on for 20 s after recovery.

    The verdict is UNKNOWN if consumers took turns and no known event allows it, but their messages were sent too early
    to prove it. It is also UNKNOWN if one consumer took over from another one that stayed connected. Every queue of the
    load is judged, also queues that were declared without ``single_active_consumer``.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "watched", "faults_begun"})

    @property
    def settled_s(self) -> float:
        return SETTLED_WITHIN_S + 10

    def check(self, history: History) -> Finding:
        facts = history.facts
        queues = stints_of(history)
        if not queues:
            return Finding(Verdict.UNKNOWN, "nothing was received")
        if unknown := _unknown(facts, queues.values()):
            names = ", ".join(f"consumer {consumer}" for consumer in unknown[:5])
            return Finding(Verdict.UNKNOWN, f"it is not recorded when {names} connected")
        shared = {queue for queue, stints in queues.items() if _overlap(stints)}
        rows = rows_of(history, shared) if shared else {}
        found = [_judged(history, queue, queues[queue], rows.get(queue)) for queue in sorted(queues)]
        broken = [one for one in found if one.breaches]
        unexplained = [change for one in found for change in one.unexplained]
        numbers = {
            "queues": len(found),
            "handovers": sum(one.handovers for one in found),
            "handovers_unexplained": len(unexplained),
            "received_beside": sum(one.misplaced for one in found),
        }
        coverage = Coverage(sum(one.judged for one in found), sum(one.received for one in found), "deliveries")
        if broken:
            breaches = [breach for one in broken for breach in one.breaches]
            lines = tuple(_breach_line(facts, breach) for breach in breaches[:EXAMPLES_MAX])
            return Finding(*_broken(facts, broken), numbers, lines, coverage)
        if unexplained:
            lines = tuple(_change_line(facts, change) for change in unexplained[:EXAMPLES_MAX])
            summary = (
                f"{counted(len(unexplained), 'time')} another consumer took over, and no event explains why: {lines[0]}"
            )
            return Finding(Verdict.UNKNOWN, summary, numbers, lines, coverage)
        summary = (
            f"{counted(len(found), 'queue')} had one active consumer at a time; "
            f"{counted(numbers['handovers'], 'time')} another took over"
        )
        if unseen := nothing_after(history, ledger_of(history)) or _unsettled(facts, queues):
            return Finding(Verdict.UNKNOWN, f"{unseen}; in the observed time, {summary}", numbers, (), coverage)
        return Finding(Verdict.VALID, summary, numbers, (), coverage)


def _unknown(facts: Facts, queues: Iterable[Stints]) -> list[int]:
    """Return the consumers without a recorded connection that were not the only consumers of their queues."""
    known = connection_ends(facts)
    consumers = ({stint.consumer for stint in stints} for stints in queues)
    return sorted({one for of_queue in consumers if len(of_queue) > 1 for one in of_queue - known.keys()})


def _unsettled(facts: Facts, queues: Mapping[int, Stints]) -> str:
    """Return in words which queue gave no message after its brokers had settled; empty if there is none."""
    for queue, stints in sorted(queues.items()):
        if calm_of(facts, queue).at_last_us > max(one.last_us for one in stints.values()):
            name = facts.queue_name(queue)
            return f"{name} gave no message after its brokers must have settled; make phases.settled_s longer"
    return ""


def _broken(facts: Facts, found: Sequence[_OfQueue]) -> tuple[Verdict, str]:
    """Return the verdict and the summary for queues with breaches."""
    names = ", ".join(facts.queue_name(one.breaches[0].queue) for one in found[:5])
    misplaced = sum(one.misplaced for one in found)
    summary = f"{counted(misplaced, 'message')} of {names} came to a consumer while another one was active"
    if all(_perhaps_parted(facts, one) for one in found):
        return Verdict.UNKNOWN, f"{summary}; other programs took so much of the machine that brokers may have parted"
    return Verdict.INVALID, summary


def _perhaps_parted(facts: Facts, found: _OfQueue) -> bool:
    """Return whether brokers that got too little of the machine may have taken each other for gone, unseen. Each time
    takes as long as ticks have to be missing. It lets a consumer be replaced once, and once more when it is over."""
    missing_us = TICKS_MIN * facts.cluster.net_ticktime_s * 1e6 if facts.cluster else np.inf
    if found.handovers > 2 * (1 + found.handed_over_us / missing_us):
        return False
    return all(_perhaps_unheard(facts, span_us, missing_us) for span_us in found.taken_over_us)


def _perhaps_unheard(facts: Facts, span_us: Period, missing_us: float) -> bool:
    """Return whether other programs may have kept brokers from hearing of each other for ``missing_us``, at any time
    that ends in the span. Their use is highest if such a time begins or ends together with a sample."""
    start, end = span_us
    edges = (edge for look in looks_of(facts) for edge in (look.end_us, look.start_us + missing_us))
    ends = {start, end, *(edge for edge in edges if start < edge < end)}
    return any(others_cpu(facts, at_us - missing_us, at_us) >= OTHERS_CPU_MIN for at_us in ends)


@dataclass(frozen=True)
class Breach:
    """Three deliveries that prove a breach. ``between`` was received by another consumer than the other two, which came
    over one connection."""

    queue: int
    before: Delivery
    between: Delivery
    after: Delivery


@dataclass(frozen=True)
class ConsumerChange:
    """A handover: one consumer received its last message for the time being, then another one its first."""

    queue: int
    before: ConsumerSession
    last_us: int
    after: ConsumerSession
    first_us: int


@dataclass
class _OfQueue:
    """What was found for one queue."""

    received: int
    judged: int
    handovers: int = 0
    #: The time from the first to the last of these, if there were breaches.
    handed_over_us: float = 0
    #: Messages that another consumer received than the active one.
    misplaced: int = 0
    breaches: list[Breach] = field(default_factory=list)
    #: The whole seconds in which the other consumer took over before each breach, including breaches without example.
    taken_over_us: set[Period] = field(default_factory=set)
    unexplained: list[ConsumerChange] = field(default_factory=list)


def _overlap(stints: Stints) -> bool:
    ordered = sorted(stints.values(), key=lambda one: one.first_us)
    return any(a.last_us > b.first_us for a, b in itertools.pairwise(ordered))


def _judged(history: History, queue: int, stints: Stints, rows: Rows | None) -> _OfQueue:
    calm = calm_of(history.facts, queue)
    received, judged = (sum(getattr(one, name) for one in stints.values()) for name in ("count", "calm"))
    found = _OfQueue(received, judged)
    if rows is not None:
        _find_breaches(found, queue, rows, calm)
    if found.misplaced and rows is not None:  # there are as many changes as messages
        found.handovers = len(rows.changes)
        found.handed_over_us = float(np.ptp(rows.received_us[rows.changes]))
        return found
    for change in _changes(queue, stints, rows):
        found.handovers += 1
        if not _explained(change, stints, calm):
            found.unexplained.append(change)
    return found


def _find_breaches(found: _OfQueue, queue: int, rows: Rows, calm: Calm) -> None:
    """Enter each delivery that came while the consumer of another connection was, and remained, the active one."""
    misplaced = np.zeros(len(rows.stint), np.bool_)
    sent_us, received_us = rows.sent_us, rows.received_us
    for (number,), of_stint in grouped(rows.stint) if len(rows.stint) else ():
        mine = np.arange(len(rows.stint))[of_stint]
        first, alive_us = int(mine[0]), sent_us[mine].max()
        meanwhile = np.arange(first, max(first, np.searchsorted(received_us, alive_us)))
        others = meanwhile[(rows.stint[meanwhile] != number) & (sent_us[meanwhile] > received_us[first])]
        # of all that it had received when the other's message was sent, the message that was sent last
        had = np.searchsorted(received_us[mine], sent_us[others]) - 1
        latest_us = np.maximum.accumulate(sent_us[mine])[had]
        broken = np.flatnonzero(calm.within(latest_us, received_us[others]))
        misplaced[others[broken]] = True
        if len(broken):
            begun = received_us[mine[had[broken]]] // _SECOND_US * _SECOND_US
            over = -(-received_us[others[broken]] // _SECOND_US) * _SECOND_US
            found.taken_over_us |= set(zip(begun.tolist(), over.tolist(), strict=True))
        for row in broken[: EXAMPLES_MAX - len(found.breaches)].tolist():
            other = int(others[row])
            before = mine[: int(had[row]) + 1]
            after = mine[sent_us[mine] > received_us[other]]
            places = (int(before[np.argmax(sent_us[before])]), other, int(after[0]))
            found.breaches.append(Breach(queue, *map(rows.delivery, places)))
    found.misplaced = int(np.count_nonzero(misplaced))


def _changes(queue: int, stints: Stints, rows: Rows | None) -> Iterator[ConsumerChange]:
    """Yield the handovers in the order of time. Two connections of one consumer in a row are no handover."""
    if rows is None:
        ordered = sorted(stints.items(), key=lambda one: one[1].first_us)
        for (before, one), (after, other) in itertools.pairwise(ordered):
            if before.consumer != after.consumer:
                yield ConsumerChange(queue, before, one.last_us, after, other.first_us)
        return
    for row in rows.changes.tolist():
        before, after = (rows.stints[int(rows.stint[place])] for place in (row - 1, row))
        yield ConsumerChange(queue, before, int(rows.received_us[row - 1]), after, int(rows.received_us[row]))


def _explained(change: ConsumerChange, stints: Stints, calm: Calm) -> bool:
    """Return whether the former connection ended about then, or brokers were disturbed. One end of a connection may
    notice later than the other that it is gone. If the other connection had been the active one, or the former went on
    after it, the end of the other one explains what came over it late."""
    former, other = stints[change.before], stints[change.after]
    is_late = other.first_us < change.first_us or former.last_us > change.first_us
    for one in (former, other) if is_late else (former,):
        noticed_within_s = STOPPED_WITHIN_S if one.ended_by == "stopped" else NOTICED_WITHIN_S
        if one.ended_us <= change.first_us + noticed_within_s * 1e6:
            return True
    return not calm.within(np.array([change.last_us]), np.array([change.first_us])).all()


def _breach_line(facts: Facts, breach: Breach) -> str:
    received = [
        f"consumer {one.consumer} received publisher {one.publisher} sequence {one.sequence} "
        f"(sent {facts.at(one.sent_us)}) at {facts.at(one.received_us)}"
        for one in (breach.before, breach.between, breach.after)
    ]
    faults = facts.faults_during(breach.before.received_us, breach.after.received_us)
    return (
        f"{facts.queue_name(breach.queue)}: {received[0]}, {received[1]}, "
        f"and over the same connection {received[2]}, {faults}"
    )


def _change_line(facts: Facts, change: ConsumerChange) -> str:
    return (
        f"{facts.queue_name(change.queue)}: consumer {change.after.consumer} at {facts.at(change.first_us)} after "
        f"consumer {change.before.consumer} at {facts.at(change.last_us)}, which stayed connected, "
        f"{facts.faults_during(change.last_us, change.first_us)}"
    )
