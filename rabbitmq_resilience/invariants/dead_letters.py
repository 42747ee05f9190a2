"""What consumers rejected, what expired and what queues dropped arrives as a dead letter."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.invariants.columns import Array, matching, messages, pieces
from rabbitmq_resilience.invariants.facts import DeadLetterFacts, Facts
from rabbitmq_resilience.invariants.ledger import Flags, Ledger, Messages, ledger_of, nothing_after
from rabbitmq_resilience.invariants.steps import NEVER_US, Step
from rabbitmq_resilience.invariants.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.record.history import Outcome

#: From then on quorum queues give up a message that came back to them 20 times, also where nobody rejected it (release
#: notes of 4.0, delivery limit).
DELIVERY_LIMIT_SINCE = (4, 0)

#: How long after its receipt a message has been rejected at the latest, and the dead letter is where it belongs.
SETTLED_WITHIN_S = 10.0


class DeadLetterPromise(InvariantSpec):
    """Dead letters are owed for the messages that consumers received and rejected, and where queues have limits besides
    for those that were confirmed and never came out of their queue.

    With ``at_least_once`` one that does not arrive is INVALID, whatever happened. With ``at_most_once`` brokers promise
    less: it is counted apart where a step took away, cut off, slowed or blocked brokers before it must have been where
    it belongs, and INVALID otherwise; and so is one that comes twice in a run in which no step began (RabbitMQ, "Dead
    Letter Exchanges", safety).

    A dead letter that nobody received and rejected, from a queue without limits, is INVALID too. (Quorum queues give up
    what came back to them 20 times, from 4.0 on: there a step excuses it.)

    Where no dead letter came after a fault had begun, it is UNKNOWN, and where nothing became one.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"watched"})

    def check(self, history: History) -> Finding:
        facts, ledger = history.facts, ledger_of(history)
        promised = facts.dead_letters
        if promised is None:
            return Finding(Verdict.UNKNOWN, "the load has no dead_letters: state them in the workload")
        letters = {name: _Letters.of(ledger, name, promised) for name in ledger.messages}
        missing = {name: one.owed & ~one.arrived for name, one in letters.items()}
        excused = _excused(history, promised, missing)
        lost = {name: flags & ~excused.get(name, np.zeros(len(flags), np.bool_)) for name, flags in missing.items()}
        arrived = _count(one.arrived for one in letters.values())
        calm = not any(step.injected for step in facts.steps)
        numbers = {
            "owed": _count(one.owed for one in letters.values()),
            "lost": _count(lost.values()),
            "lost_permitted": _count(missing.values()) - _count(lost.values()),
            "arrived": arrived,
            "unasked": 0 if _may_give_up(facts, promised) else _count(one.unasked for one in letters.values()),
            "duplicates": ledger.letters_read - arrived,
        }
        doubled = numbers["duplicates"] if calm and not promised.at_least_once else 0
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


class _Letters:
    """Of one publisher, by sequence: which dead letters are ``owed``, which ``arrived``, and which nobody asked for."""

    def __init__(self, owed: Flags, arrived: Flags, unasked: Flags) -> None:
        self.owed = owed
        self.arrived = arrived
        self.unasked = unasked

    @classmethod
    def of(cls, ledger: Ledger, publisher: int, promised: DeadLetterFacts) -> _Letters:
        m = ledger.messages[publisher]
        sequence = np.arange(len(m.outcome))
        received = _any(m, "received")
        rejected = received & ledger.letters.rejected(np.full(len(sequence), publisher), sequence)
        kept = (m.outcome == Outcome.CONFIRMED) & _any(m, "there") & ~received
        owed = rejected | kept if promised.limited else rejected
        unasked = np.zeros(len(sequence), np.bool_) if promised.limited else m.dead & ~rejected
        return cls(owed, m.dead, unasked)


def _any(m: Messages, name: str) -> Flags:
    of_lanes: list[Flags] = [getattr(lane, name) for lane in m.lanes]
    found: Flags = np.logical_or.reduce(of_lanes) if of_lanes else np.zeros(len(m.outcome), np.bool_)
    return found


def _count(of: Iterable[Flags]) -> int:
    return sum(int(np.count_nonzero(flags)) for flags in of)


def _disturbs(step: Step) -> bool:
    """Whether it does anything to brokers or their links, and not to clients alone."""
    return step.injected and bool(step.down or step.cut or step.starved or step.slow_s or step.alarmed)


def _disturbed_us(facts: Facts) -> float:
    """From when on at_most_once promises nothing."""
    return min((step.possible_us[0] for step in facts.steps if _disturbs(step)), default=NEVER_US)


def _may_give_up(facts: Facts, promised: DeadLetterFacts) -> bool:
    """Whether queues may have dead letters besides: by their limits, or by the limit of deliveries where something made
    messages come again."""
    if promised.limited:
        return True
    newest = facts.cluster is None or facts.cluster.broker_version >= DELIVERY_LIMIT_SINCE
    upgraded = any(step.fault == "upgrade" for step in facts.steps)
    quorum = any(queue.kind == "quorum" for queue in facts.queues)
    return quorum and (newest or upgraded) and any(step.injected for step in facts.steps)


def _excused(history: History, promised: DeadLetterFacts, missing: Mapping[int, Flags]) -> Mapping[int, Flags]:
    """What at_most_once may have lost, by publisher and sequence: all but what had been received so long before the
    first disturbance that it was where it belongs."""
    begins_us = _disturbed_us(history.facts)
    if promised.at_least_once or begins_us == NEVER_US or not any(flags.any() for flags in missing.values()):
        return {}
    last_us = {name: np.full(len(flags), np.inf) for name, flags in missing.items()}
    for publisher, sequence, received_us, intact in _source_deliveries(history):
        for name, flags in missing.items():
            mine = (publisher == name) & intact & (sequence < len(flags))
            mine[mine] = flags[sequence[mine]]
            known = last_us[name]
            known[sequence[mine]] = np.where(np.isinf(known[sequence[mine]]), -np.inf, known[sequence[mine]])
            np.maximum.at(known, sequence[mine], received_us[mine])
    return {name: flags & (last_us[name] + SETTLED_WITHIN_S * 1e6 >= begins_us) for name, flags in missing.items()}


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
    """Whether what queues drop or let expire may be gone: its dead letters come at most once, and brokers were
    disturbed."""
    told = facts.dead_letters
    return told is not None and told.limited and not told.at_least_once and _disturbed_us(facts) < NEVER_US


def lost_as_letters(facts: Facts, queue: npt.NDArray[np.uint32]) -> Iterator[tuple[str, Flags]]:
    """Which lost messages of these queues that may be, and why."""
    if may_lose_letters(facts):
        yield f"queues drop them, and {_AT_MOST_ONCE}", np.isin(queue, sorted(facts.letters.queue_of))


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
