"""Check that messages which were rejected, expired or dropped arrive as dead letters."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from rabbitmq_resilience.checkers.columns import Array, grouped, matching, messages, pieces
from rabbitmq_resilience.checkers.delivery_limit import Key, letters_came_us, may_have_given_up
from rabbitmq_resilience.checkers.duplicates import Duplicate, forbidden_letters
from rabbitmq_resilience.checkers.exclusive_owners import absences
from rabbitmq_resilience.checkers.facts import DeadLetterFacts, Facts
from rabbitmq_resilience.checkers.lost_dead_letters import FELT_FOR_S, Moments, disturbed, meets
from rabbitmq_resilience.checkers.message_ledger import Flags, Ledger, ledger_of, nothing_after
from rabbitmq_resilience.checkers.times import NEVER, Times, times
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.unrouted import sharing, skipped_bindings
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.history import Outcome

#: A dead letter is in its queue at most this long after a consumer was done with the message.
SETTLED_WITHIN_S = 10.0


class DeadLetterPromise(InvariantSpec):
    """Dead letters are owed for messages that consumers received and rejected. If queues have limits, they are also
    owed for messages that were confirmed and never came out of their queue. Each queue of a message owes a dead letter
    to each queue that takes its dead letters.

    With ``at_least_once`` a dead letter that does not arrive is always INVALID. With ``at_most_once`` brokers promise
    less. A missing dead letter is counted apart if a step disturbed brokers that may have its queue, or the queue that
    takes it, at some time from 30 s before its message was sent until it had to arrive, 10 s after the message left its
    queue. Otherwise it is INVALID. A dead letter that comes twice, unmarked, is INVALID too, unless the brokers of its
    queues were disturbed as for ``no_loss`` (RabbitMQ, "Dead Letter Exchanges", safety). A message that never came out
    of its queue counts as gone from it when a later message of its publisher came out.

    A dead letter from a queue without limits is INVALID if no consumer received and rejected its message. (From 4.0 on
    quorum queues give up a message that came back 20 times, or as often as ``x-delivery-limit`` states. This excuses a
    dead letter if as many events lie between the sending of the message and its arrival. Events are the ends of
    connections of the queue's consumers, and the begins and ends of steps on brokers; a step that goes on and off in
    turns counts for any number. From 4.3 on, returns because brokers were cut apart do not count.)

    If consumers acknowledge automatically or early, a message that a consumer held when its connection ended may be
    gone or rejected. No dead letter is owed for such a message, and one may come. (``no_loss`` finds what is gone.)

    The verdict is UNKNOWN if no dead letter came after a fault had begun, or if no message became a dead letter.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"watched"})

    def check(self, history: History) -> Finding:
        facts, ledger = history.facts, ledger_of(history)
        promised = facts.dead_letters
        if promised is None:
            return Finding(Verdict.UNKNOWN, "the load has no dead_letters: state them in the workload")
        known = facts_of(history)
        letters = known.letters
        missing = {key: one.missing for key, one in letters.items()}
        permitted = {key: flags & (known.excused[key] | known.in_hand[key]) for key, flags in missing.items()}
        lost = {key: flags & ~permitted[key] for key, flags in missing.items()}
        arrived = _count(one.arrived for one in letters.values())
        doubled = () if promised.at_least_once else forbidden_letters(history, ledger)
        numbers = {
            "owed": _count(one.owed for one in letters.values()),
            "lost": _count(lost.values()),
            "lost_permitted": _count(permitted.values()),
            "arrived": arrived,
            "unasked": _count(one.unasked for one in letters.values()),
            "duplicates": ledger.letters_read - arrived,
            "duplicates_forbidden": len(doubled),
        }
        summary = (
            f"{counted(numbers['owed'], 'message became a dead letter', 'messages became dead letters')}; "
            f"{numbers['lost']} of them never arrived"
        )
        if numbers["lost_permitted"]:
            reasons = {_AT_MOST_ONCE: known.excused, _IN_HAND.format(promised.acks): known.in_hand}
            why = [text for text, flags in reasons.items() if any((missing[key] & flags[key]).any() for key in missing)]
            summary += f", and {numbers['lost_permitted']} more that may be lost: {'; '.join(why)}"
        if numbers["unasked"]:
            summary += f", and {numbers['unasked']} arrived that no consumer rejected"
        if doubled:
            summary += f", and {len(doubled)} arrived twice, unmarked, though nothing can have repeated them"
        coverage = Coverage(numbers["owed"] - numbers["lost_permitted"], numbers["owed"], "letters")
        if numbers["lost"] or numbers["unasked"] or doubled:
            examples = [*_examples(history, lost), *(_twice(facts, one) for one in doubled)]
            return Finding(Verdict.INVALID, summary, numbers, tuple(examples[:EXAMPLES_MAX]), coverage)
        if unseen := _unseen(history, ledger, owed=numbers["owed"]):
            return Finding(Verdict.UNKNOWN, f"{unseen}; in the observed time, {summary}", numbers, (), coverage)
        return Finding(Verdict.VALID, summary, numbers, (), coverage)


_AT_MOST_ONCE = "dead_letters.strategy is at_most_once, and brokers were disturbed"
_IN_HAND = "acks are {}, and a connection of a consumer ended"

#: By sequence.
Chosen = Mapping[Key, Flags]


@dataclass(frozen=True)
class _Letters:
    """The dead letters of one key, as flags by sequence: those ``owed``, those that ``arrived``, and those ``unasked``
    that no rejection explains. ``received``: messages that came out of their queue. ``rejectable``: messages that
    consumers reject whenever they get them."""

    owed: Flags
    arrived: Flags
    unasked: Flags
    received: Flags
    rejectable: Flags

    @property
    def missing(self) -> Flags:
        return self.owed & ~self.arrived

    @classmethod
    def of(cls, ledger: Ledger, key: Key, promised: DeadLetterFacts) -> _Letters:
        publisher, number, place = key
        m = ledger.messages[publisher]
        lane, sequence = m.lanes[number], np.arange(len(m.outcome))
        goes = promised.letters.have(lane.queue, place)
        received, arrived = lane.received & goes, lane.dead[place]
        rejectable = goes & promised.letters.rejected(np.full(len(sequence), publisher), sequence)
        rejected = received & rejectable
        kept = (m.outcome == Outcome.CONFIRMED) & goes & ~received
        owed = rejected | kept if promised.limited else rejected
        unasked = arrived & ~rejected
        return cls(owed, arrived, unasked & (not promised.limited), received, rejectable)


@dataclass(frozen=True)
class LetterFacts:
    """All dead letters of a history. ``excused``: letters that may be missing, as brokers were disturbed or did not
    route to their queue. ``in_hand``: letters of messages that a consumer may have held when its connection was
    lost."""

    letters: Mapping[Key, _Letters]
    excused: Chosen
    in_hand: Chosen


_found: WeakKeyDictionary[History, LetterFacts] = WeakKeyDictionary()


def facts_of(history: History) -> LetterFacts:
    """Return the dead letters of a history, whose load must have some. They are computed once for each history."""
    if history not in _found:
        promised, ledger = history.facts.dead_letters, ledger_of(history)
        assert promised is not None
        places = range(promised.letters.places)
        keys = [(p, n, k) for p, m in ledger.messages.items() for n in range(len(m.lanes)) for k in places]
        letters = {key: _Letters.of(ledger, key, promised) for key in keys}
        _found[history] = _excused(history, promised, _without_given_up(history, letters))
    return _found[history]


def _without_given_up(history: History, letters: Mapping[Key, _Letters]) -> Mapping[Key, _Letters]:
    """Return the letters; those that a delivery limit may explain are no longer ``unasked``."""
    if not any((one.unasked & one.received).any() for one in letters.values()):
        return letters
    ledger, sent_us = ledger_of(history), _sent_us(history, letters)
    came_us, found = letters_came_us(history, ledger), {}
    for key, one in letters.items():
        queue = ledger.messages[key[0]].lanes[key[1]].queue
        given_up = one.received & may_have_given_up(history, ledger, queue, sent_us[key[:2]], came_us[key])
        found[key] = replace(one, unasked=one.unasked & ~given_up)
    return found


def _count(of: Iterable[Flags]) -> int:
    return sum(int(np.count_nonzero(flags)) for flags in of)


def _excused(history: History, promised: DeadLetterFacts, letters: Mapping[Key, _Letters]) -> LetterFacts:
    """Return the letters with the excuses for missing ones.

    With at_most_once, letters may be lost that were on their way when brokers were disturbed, or whose message never
    came to its queue. Consumers that do not wait with their acknowledgements may lose, or may have rejected, what they
    held when their connection ended; a broker may notice that end later.
    """
    none = {key: np.zeros(len(one.owed), np.bool_) for key, one in letters.items()}
    may_be_lost = not promised.at_least_once and any(step.injected for step in history.facts.steps)
    ends_us = NEVER if promised.acks == "manual" else _ends_us(history.facts)
    doubtful = any((one.missing | one.unasked).any() for one in letters.values())
    if not doubtful or not (may_be_lost or not ends_us.empty):
        return LetterFacts(letters, none, none)
    sent_us = _sent_us(history, letters)
    left_us = _left_us(history, letters)
    excused, in_hand, kept = dict(none), dict(none), dict(letters)
    over: Chosen = {} if promised.at_least_once else _passed_over(history, letters)
    for key, one in letters.items():
        settled_us = left_us[key[:2]] + (promised.held_s + SETTLED_WITHIN_S) * 1e6
        began_us = sent_us[key[:2]]
        lost = disturbed(history, key, began_us, settled_us) if may_be_lost else np.zeros(len(began_us), np.bool_)
        excused[key] = one.missing & (lost | over.get(key, False))
        held = ~one.received & meets(began_us, settled_us, ends_us)
        in_hand[key] = one.missing & held
        kept[key] = replace(one, unasked=one.unasked & ~(one.rejectable & held))
    return LetterFacts(kept, excused, in_hand)


def _passed_over(history: History, letters: Mapping[Key, _Letters]) -> Chosen:
    """Return the messages that never came, and that brokers may not have routed to their queue (``unrouted``)."""
    ledger = ledger_of(history)
    gone = {key: one.missing & ~one.received for key, one in letters.items()}
    if not sharing(history.facts, ledger) or not any(flags.any() for flags in gone.values()):
        return {}
    found = {key: np.zeros(len(flags), np.bool_) for key, flags in gone.items()}
    columns = ("publisher", "lane", "sequence", "queue", "node", "sent_us", "outcome_us")
    for piece in pieces(history.publishes(), *columns):
        rows = dict(zip(columns, piece, strict=True))
        for _, mine in skipped_bindings(history, ledger, rows):
            for (publisher, lane), its in grouped(rows["publisher"], rows["lane"]):
                over = rows["sequence"][its][mine[its]]
                for key in (key for key in found if key[:2] == (publisher, lane)):
                    found[key][over] = gone[key][over]
    return found


def _ends_us(facts: Facts) -> Times:
    """Return the times from the end of a consumer's connection until a broker must have noticed it."""
    consumers = {number for number, _ in facts.of_clients("consumer")}
    return times((start, end + FELT_FOR_S * 1e6) for one in consumers for start, end in absences(facts, one))


def _sent_us(history: History, letters: Mapping[Key, _Letters]) -> Mapping[tuple[int, int], Moments]:
    """Return when each message was sent: an array by sequence for each publisher and lane."""
    sent_us = {key[:2]: np.full(len(one.owed), -np.inf) for key, one in letters.items()}
    for publisher, lane, sequence, at_us in pieces(history.publishes(), "publisher", "lane", "sequence", "sent_us"):
        for key, rows in grouped(publisher, lane):
            sent_us[key[0], key[1]][sequence[rows]] = at_us[rows]
    return sent_us


def _left_us(history: History, letters: Mapping[Key, _Letters]) -> Mapping[tuple[int, int], Moments]:
    """Return when each message had left its queue at the latest: an array by sequence for each publisher and lane.

    A message left when it was last received. If it never was, it left when a later message of its publisher first came
    from its queue; infinity if none came. With priorities a later message proves nothing.
    """
    ledger = ledger_of(history)
    first_us = {key[:2]: np.full(len(one.owed), np.inf) for key, one in letters.items()}
    last_us = {key[:2]: np.full(len(one.owed), -np.inf) for key, one in letters.items()}
    for queue, publisher, sequence, received_us in _source_deliveries(history):
        for (name, source), rows in grouped(publisher, queue) if len(publisher) else ():
            for number, lane in enumerate(ledger.messages[name].lanes):
                mine, at_us = sequence[rows], received_us[rows]
                known = mine < len(lane.queue)
                known[known] = ledger.shards.first(lane.queue[mine[known]]) == ledger.shards.first_of(source)
                np.minimum.at(first_us[name, number], mine[known], at_us[known])
                np.maximum.at(last_us[name, number], mine[known], at_us[known])
    left_us = {}
    for key, at_us in last_us.items():
        lane = ledger.messages[key[0]].lanes[key[1]]
        later_us = np.full(len(lane.queue), np.inf)
        for queue in np.unique(lane.queue[lane.there]).tolist() if ledger.in_order.priorities is None else ():
            of_queue = np.flatnonzero(lane.queue == queue)
            later_us[of_queue] = np.minimum.accumulate(first_us[key][of_queue][::-1])[::-1]
        left_us[key] = np.where(lane.received, at_us, later_us)
    return left_us


def _source_deliveries(history: History) -> Iterator[tuple[Array, ...]]:
    """Yield columns (queue, publisher, sequence, received_us) of intact deliveries that are no dead letters."""
    letters = history.facts.letters
    for *columns, intact in pieces(history.deliveries(), "queue", "publisher", "sequence", "received_us", "intact"):
        plain = intact & ~letters.taken_from(columns[0])
        yield tuple(column[plain] for column in columns)


def _unseen(history: History, ledger: Ledger, *, owed: int) -> str:
    """Return why the effect of a fault on dead letters is not known; empty if it is known."""
    if not owed:
        return "no message became a dead letter"
    if silent := nothing_after(history, ledger):
        return silent
    for step in history.facts.steps:
        if step.is_fault and step.injected and step.possible_us[0] > ledger.letters_last_us:
            return f"no dead letter came after {step} had begun at {history.facts.at(step.possible_us[0])}"
    return ""


def may_lose_letters(facts: Facts) -> bool:
    """Return whether messages that queues drop or let expire may be gone, as their dead letters come at most once."""
    promised = facts.dead_letters
    return promised is not None and promised.limited and not promised.at_least_once


def lost_as_letters(history: History, publisher: Array, lane: Array, sequence: Array) -> Iterator[tuple[str, Flags]]:
    """Yield (reason, flags) for the given lost messages: which of them may be lost for that reason."""
    if may_lose_letters(history.facts):
        excused = facts_of(history).excused
        mine = np.zeros(len(sequence), np.bool_)
        for (name, number), rows in grouped(publisher, lane) if len(publisher) else ():
            for place in range(history.facts.letters.places):
                mine[rows] |= excused[name, number, place][sequence[rows]]
        yield f"queues drop them, and {_AT_MOST_ONCE}", mine


def _examples(history: History, lost: Chosen) -> Iterator[str]:
    facts = history.facts
    keys = ((key, sequence) for key, flags in sorted(lost.items()) for sequence in np.flatnonzero(flags).tolist())
    places: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    for (publisher, lane, place), sequence in itertools.islice(keys, EXAMPLES_MAX):
        places[publisher, sequence, lane].append(place)
    wanted = np.array([key[:2] for key in places], np.uint64).reshape(-1, 2)
    columns = ("lane", "queue", "sent_us", "outcome_us")
    for row in matching(history.publishes(), messages(wanted[:, 0], wanted[:, 1]), *columns):
        for place in places.get((row["publisher"], row["sequence"], row["lane"]), ()):
            taking = facts.letters.queues_of[row["queue"]][place]
            yield (
                f"lost: publisher {row['publisher']} sequence {row['sequence']} of {facts.queue_name(row['queue'])}, "
                f"sent {facts.at(row['sent_us'])}, never came from {facts.queue_name(taking)} as a dead letter, "
                f"phase {facts.phase_at(row['sent_us'])}, {facts.faults_during(row['sent_us'], row['outcome_us'])}"
            )


def _twice(facts: Facts, one: Duplicate) -> str:
    return (
        f"duplicate: the dead letter of publisher {one.publisher} sequence {one.sequence} came from "
        f"{facts.queue_name(one.queue)} at {facts.at(one.before_us)}, and again at {facts.at(one.received_us)}, "
        f"without the redelivered flag, {facts.faults_during(one.before_us, one.received_us)}"
    )
