"""What consumers rejected, what expired and what queues dropped arrives as a dead letter."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import numpy as np

from rabbitmq_resilience.invariants.columns import matching, messages
from rabbitmq_resilience.invariants.ledger import Flags, Ledger, Messages, ledger_of, nothing_after
from rabbitmq_resilience.invariants.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.record.history import Outcome

#: From then on quorum queues give up a message that came back to them 20 times, also where nobody rejected it (release
#: notes of 4.0, delivery limit).
DELIVERY_LIMIT_SINCE = (4, 0)


class DeadLetterPromise(InvariantSpec):
    """Dead letters are owed for the confirmed messages that consumers reject, and where queues have limits besides for
    those that never came out of their queue. With ``at_least_once`` one that does not arrive is INVALID, whatever
    happened. With ``at_most_once`` brokers promise less: it is INVALID in a run in which no step began, and counted
    apart otherwise (RabbitMQ, "Dead Letter Exchanges", safety).

    A dead letter that nobody rejected, from a queue without limits, is INVALID too, but for quorum queues from 4.0 on,
    which have a limit of deliveries.

    Where no message was received after a fault had begun, it is UNKNOWN, and where nothing was a dead letter. Reported,
    and legal: letters that came several times.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"watched"})

    def check(self, history: History) -> Finding:
        facts, ledger = history.facts, ledger_of(history)
        promised = facts.dead_letters
        if promised is None:
            return Finding(Verdict.UNKNOWN, "the load has no dead_letters: state them in the workload")
        rejected = {name: _rejected(ledger, name) for name in ledger.messages}
        owed = {name: _owed(m, rejected[name], limited=promised.limited) for name, m in ledger.messages.items()}
        missing = _count(owed[name] & ~m.dead for name, m in ledger.messages.items())
        asked = _count(owed.values())
        unasked = (
            0
            if promised.limited or _limits_deliveries(history)
            else _count(m.dead & ~rejected[name] for name, m in ledger.messages.items())
        )
        excused = 0 if promised.at_least_once or not any(step.injected for step in facts.steps) else missing
        arrived = _count(m.dead for m in ledger.messages.values())
        numbers = {
            "owed": asked,
            "lost": missing - excused,
            "lost_permitted": excused,
            "arrived": arrived,
            "unasked": unasked,
            "duplicates": ledger.letters_read - arrived,
        }
        coverage = Coverage(asked - excused, asked, "letters")
        summary = f"{asked} messages became dead letters; {missing - excused} of them never arrived"
        if excused:
            summary += f", and {excused} more that may be lost, as dead_letters.strategy is at_most_once"
        if unasked:
            summary += f", and {unasked} arrived that nobody rejected"
        if missing - excused or unasked:
            lost = {name: owed[name] & ~m.dead for name, m in ledger.messages.items()}
            examples = tuple(_examples(history, lost)) if missing - excused else ()
            return Finding(Verdict.INVALID, summary, numbers, examples, coverage)
        unseen = nothing_after(history, ledger) if asked else "nothing became one"
        if unseen:
            return Finding(Verdict.UNKNOWN, f"{unseen}; as far as was seen, {summary}", numbers, (), coverage)
        return Finding(Verdict.VALID, summary, numbers, (), coverage)


def _limits_deliveries(history: History) -> bool:
    cluster = history.facts.cluster
    kinds = {queue.kind for queue in history.facts.queues}
    return "quorum" in kinds and (cluster is None or cluster.broker_version >= DELIVERY_LIMIT_SINCE)


def _count(of: Iterable[Flags]) -> int:
    return sum(int(np.count_nonzero(flags)) for flags in of)


def _rejected(ledger: Ledger, publisher: int) -> Flags:
    """By sequence."""
    sequence = np.arange(len(ledger.messages[publisher].outcome))
    return ledger.letters.rejected(np.full(len(sequence), publisher), sequence)


def _owed(m: Messages, rejected: Flags, *, limited: bool) -> Flags:
    """The messages of one publisher that must have become dead letters, by sequence."""
    owed = np.zeros(len(m.outcome), np.bool_)
    for lane in m.lanes:
        owed |= lane.there & ((rejected | ~lane.received) if limited else rejected)
    owed &= m.outcome == Outcome.CONFIRMED
    return owed


def _examples(history: History, missing: Mapping[int, Flags]) -> Iterator[str]:
    facts = history.facts
    keys = ((name, sequence) for name, flags in sorted(missing.items()) for sequence in np.flatnonzero(flags).tolist())
    some = np.array(list(itertools.islice(keys, EXAMPLES_MAX)), np.uint64).reshape(-1, 2)
    columns = ("queue", "sent_us", "outcome_us")
    for row in matching(history.publishes(), messages(some[:, 0], some[:, 1]), *columns):
        taking = facts.letters.queue_of.get(row["queue"])
        where = facts.queue_name(taking) if taking is not None else "no queue"
        yield (
            f"lost: publisher {row['publisher']} sequence {row['sequence']} of {facts.queue_name(row['queue'])}, "
            f"confirmed {facts.at(row['outcome_us'])}, never came from {where} as a dead letter, "
            f"phase {facts.phase_at(row['sent_us'])}, {facts.beside(row['sent_us'], row['outcome_us'])}"
        )
