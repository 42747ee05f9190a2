"""What consumers rejected, what expired and what queues dropped arrives as a dead letter."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.invariants.columns import Array, grouped, matching, messages, pieces
from rabbitmq_resilience.invariants.facts import DeadLetterFacts, Facts
from rabbitmq_resilience.invariants.ledger import Flags, Ledger, ledger_of, nothing_after
from rabbitmq_resilience.invariants.times import Times, periods, times
from rabbitmq_resilience.invariants.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.record.history import Outcome

#: From then on quorum queues give up a message that came back to them 20 times, also where nobody rejected it (release
#: notes of 4.0, delivery limit).
DELIVERY_LIMIT_SINCE = (4, 0)

#: How long after a consumer was done with a message the dead letter is where it belongs at the latest.
SETTLED_WITHIN_S = 10.0
#: How long a disturbance is felt after its nodes were seen up again.
FELT_FOR_S = 30.0


class DeadLetterPromise(InvariantSpec):
    """Dead letters are owed for the messages that consumers received and rejected, and where queues have limits besides
    for those that were confirmed and never came out of their queue.

    With ``at_least_once`` one that does not arrive is INVALID, whatever happened. With ``at_most_once`` brokers promise
    less: it is counted apart where a step disturbed brokers between the time at which its message was sent and that at
    which it must have been where it belongs, and INVALID otherwise; and so is one that comes twice, unmarked, in a run
    in which no step began (RabbitMQ, "Dead Letter Exchanges", safety). What never came out of its queue had left it
    when a later message of its publisher did.

    A dead letter that nobody received and rejected, from a queue without limits, is INVALID too. (Quorum queues give up
    what came back to them 20 times, from 4.0 on: there a step excuses it, if somebody received the message.)

    Where no dead letter came after a fault had begun, it is UNKNOWN, and where nothing became one.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"watched"})

    def check(self, history: History) -> Finding:
        facts, ledger = history.facts, ledger_of(history)
        promised = facts.dead_letters
        if promised is None:
            return Finding(Verdict.UNKNOWN, "the load has no dead_letters: state them in the workload")
        letters, excused = facts_of(history).letters, facts_of(history).excused
        missing = {name: one.missing for name, one in letters.items()}
        lost = {name: flags & ~excused[name] for name, flags in missing.items()}
        arrived = _count(one.arrived for one in letters.values())
        calm = not any(step.injected for step in facts.steps)
        numbers = {
            "owed": _count(one.owed for one in letters.values()),
            "lost": _count(lost.values()),
            "lost_permitted": _count(missing.values()) - _count(lost.values()),
            "arrived": arrived,
            "unasked": _count(one.unasked for one in letters.values()),
            "duplicates": ledger.letters_read - arrived,
        }
        unmarked = ledger.letters_fresh - _count(m.dead_fresh for m in ledger.messages.values())
        doubled = unmarked if calm and not promised.at_least_once else 0
        summary = f"{numbers['owed']} messages became dead letters; {numbers['lost']} of them never arrived"
        if numbers["lost_permitted"]:
            summary += f", and {numbers['lost_permitted']} more that may be lost: {_AT_MOST_ONCE}"
        if numbers["unasked"]:
            summary += f", and {numbers['unasked']} arrived that nobody rejected"
        if doubled:
            summary += f", and {doubled} arrived twice, though nothing had happened"
        coverage = Coverage(numbers["owed"] - numbers["lost_permitted"], numbers["owed"], "letters")
        if numbers["lost"] or numbers["unasked"] or doubled:
            return Finding(Verdict.INVALID, summary, numbers, tuple(_examples(history, lost)), coverage)
        if unseen := _unseen(history, ledger, owed=numbers["owed"]):
            return Finding(Verdict.UNKNOWN, f"{unseen}; as far as was seen, {summary}", numbers, (), coverage)
        return Finding(Verdict.VALID, summary, numbers, (), coverage)


_AT_MOST_ONCE = "dead_letters.strategy is at_most_once, and brokers were disturbed"


@dataclass(frozen=True)
class _Letters:
    """Of one publisher, by sequence: which dead letters are ``owed``, which ``arrived``, and which nobody asked for.
    ``received``: which messages came out of their queue."""

    owed: Flags
    arrived: Flags
    unasked: Flags
    received: Flags

    @property
    def missing(self) -> Flags:
        return self.owed & ~self.arrived

    @classmethod
    def of(cls, ledger: Ledger, publisher: int, promised: DeadLetterFacts, *, given_up: bool) -> _Letters:
        """``given_up``: whether queues may have given up messages that came again and again."""
        m = ledger.messages[publisher]
        sequence = np.arange(len(m.outcome))
        received = m.received
        rejected = received & ledger.letters.rejected(np.full(len(sequence), publisher), sequence)
        kept = (m.outcome == Outcome.CONFIRMED) & ~received
        owed = rejected | kept if promised.limited else rejected
        unasked = m.dead & ~rejected & ~(received & given_up)
        return cls(owed, m.dead, unasked & (not promised.limited), received)


@dataclass(frozen=True)
class LetterFacts:
    """By publisher; ``excused``: which of the missing letters may be, by sequence."""

    letters: Mapping[int, _Letters]
    excused: Mapping[int, Flags]


_found: WeakKeyDictionary[History, LetterFacts] = WeakKeyDictionary()


def facts_of(history: History) -> LetterFacts:
    """Made when first asked for, forgotten with the history. The load has dead letters."""
    if history not in _found:
        promised, ledger = history.facts.dead_letters, ledger_of(history)
        assert promised is not None
        given_up = _may_give_up(history.facts)
        letters = {name: _Letters.of(ledger, name, promised, given_up=given_up) for name in ledger.messages}
        _found[history] = LetterFacts(letters, _excused(history, promised, letters))
    return _found[history]


def _count(of: Iterable[Flags]) -> int:
    return sum(int(np.count_nonzero(flags)) for flags in of)


def _disturbed_us(facts: Facts) -> Times:
    """When at_most_once promises nothing: while a step acts on brokers or their links, and not on clients alone, or on
    queues as operators do, and for some time after the nodes that it took away were seen up again."""
    spans = []
    for step in facts.steps:
        acts = step.down or step.cut or step.starved or step.slow_s or step.alarmed or step.operation
        if step.injected and acts:
            start_us, end_us = step.possible_us
            backs_us = [facts.first_up_us(node, after_us=end_us) for node in step.down]
            spans.append((start_us, max([end_us, *backs_us]) + FELT_FOR_S * 1e6))
    return times(spans)


def _may_give_up(facts: Facts) -> bool:
    """Whether queues may have dead letters besides, by the limit of deliveries, as something made messages come
    again."""
    newest = facts.cluster is None or facts.cluster.broker_version >= DELIVERY_LIMIT_SINCE
    upgraded = any(step.fault == "upgrade" for step in facts.steps)
    quorum = any(queue.kind == "quorum" for queue in facts.queues)
    return quorum and (newest or upgraded) and any(step.injected for step in facts.steps)


def _excused(history: History, promised: DeadLetterFacts, letters: Mapping[int, _Letters]) -> Mapping[int, Flags]:
    """What at_most_once may have lost: what was on its way when brokers were disturbed."""
    none = {name: np.zeros(len(one.owed), np.bool_) for name, one in letters.items()}
    disturbed_us = _disturbed_us(history.facts)
    if promised.at_least_once or disturbed_us.empty or not any(one.missing.any() for one in letters.values()):
        return none
    sent_us = {name: np.full(len(flags), -np.inf) for name, flags in none.items()}
    for publisher, sequence, at_us in pieces(history.publishes(), "publisher", "sequence", "sent_us"):
        for (name,), rows in grouped(publisher):
            sent_us[name][sequence[rows]] = at_us[rows]
    left_us = _left_us(history, letters)
    found = dict(none)
    for name, one in letters.items():
        settled_us = left_us[name] + (promised.held_s + SETTLED_WITHIN_S) * 1e6
        on_its_way = np.zeros(len(one.owed), np.bool_)
        for start, end in periods(disturbed_us):
            on_its_way |= (sent_us[name] < end) & (settled_us >= start)
        found[name] = one.missing & on_its_way
    return found


def _left_us(history: History, letters: Mapping[int, _Letters]) -> Mapping[int, npt.NDArray[np.float64]]:
    """When each message had left its queue at the latest: it was received for the last time, or where it never was, a
    later one of its publisher came from its queue for the first time; infinity if none did. With priorities a later
    one tells nothing."""
    ledger = ledger_of(history)
    first_us = {name: np.full(len(one.owed), np.inf) for name, one in letters.items()}
    last_us = {name: np.full(len(one.owed), -np.inf) for name, one in letters.items()}
    for publisher, sequence, received_us, intact in _source_deliveries(history):
        for (name,), rows in grouped(publisher) if len(publisher) else ():
            whole = intact[rows] & (sequence[rows] < len(first_us.get(name, ())))
            mine, at_us = sequence[rows][whole], received_us[rows][whole]
            if name in first_us:
                np.minimum.at(first_us[name], mine, at_us)
                np.maximum.at(last_us[name], mine, at_us)
    for name, one in letters.items():
        later_us = np.full(len(one.owed), np.inf)
        for lane in ledger.messages[name].lanes if ledger.priorities is None else ():
            for queue in np.unique(lane.queue[lane.there]).tolist():
                of_queue = np.flatnonzero(lane.queue == queue)
                backwards = np.minimum.accumulate(first_us[name][of_queue][::-1])[::-1]
                later_us[of_queue] = backwards
        last_us[name] = np.where(one.received, last_us[name], later_us)
    return last_us


def _source_deliveries(history: History) -> Iterator[tuple[Array, Array, Array, Array]]:
    letters = history.facts.letters
    columns = ("queue", "publisher", "sequence", "received_us", "intact")
    for queue, *told in pieces(history.deliveries(), *columns):
        plain = ~letters.taken_from(queue)
        publisher, sequence, received_us, intact = (column[plain] for column in told)
        yield publisher, sequence, received_us, intact


def _unseen(history: History, ledger: Ledger, *, owed: int) -> str:
    """Why nothing is known of what a fault did to dead letters; empty if it is."""
    if not owed:
        return "nothing became one"
    if silent := nothing_after(history, ledger):
        return silent
    for step in history.facts.steps:
        if step.is_fault and step.injected and step.possible_us[0] > ledger.letters_last_us:
            return f"no dead letter came after {step} had begun at {history.facts.at(step.possible_us[0])}"
    return ""


def may_lose_letters(facts: Facts) -> bool:
    """Whether what queues drop or let expire may be gone: its dead letters come at most once."""
    told = facts.dead_letters
    return told is not None and told.limited and not told.at_least_once


def lost_as_letters(history: History, publisher: Array, sequence: Array) -> Iterator[tuple[str, Flags]]:
    """Which of these lost messages may be, and why."""
    if may_lose_letters(history.facts):
        excused = facts_of(history).excused
        mine = np.zeros(len(sequence), np.bool_)
        for (name,), rows in grouped(publisher) if len(publisher) else ():
            mine[rows] = excused[name][sequence[rows]]
        yield f"queues drop them, and {_AT_MOST_ONCE}", mine


def _examples(history: History, lost: Mapping[int, Flags]) -> Iterator[str]:
    facts = history.facts
    keys = ((name, sequence) for name, flags in sorted(lost.items()) for sequence in np.flatnonzero(flags).tolist())
    some = np.array(list(itertools.islice(keys, EXAMPLES_MAX)), np.uint64).reshape(-1, 2)
    columns = ("queue", "sent_us", "outcome_us")
    for row in matching(history.publishes(), messages(some[:, 0], some[:, 1]), *columns):
        taking = facts.letters.queue_of.get(row["queue"])
        where = facts.queue_name(taking) if taking is not None else "no queue"
        yield (
            f"lost: publisher {row['publisher']} sequence {row['sequence']} of {facts.queue_name(row['queue'])}, "
            f"sent {facts.at(row['sent_us'])}, never came from {where} as a dead letter, "
            f"phase {facts.phase_at(row['sent_us'])}, {facts.beside(row['sent_us'], row['outcome_us'])}"
        )
