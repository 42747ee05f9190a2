"""Check that each message that was confirmed and not returned arrives, and that nothing else arrives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.columns import Array, grouped, matching, messages, pieces
from rabbitmq_resilience.checkers.damaged_files import lost_with_files
from rabbitmq_resilience.checkers.dead_letters import lost_as_letters
from rabbitmq_resilience.checkers.duplicates import Duplicate, forbidden
from rabbitmq_resilience.checkers.exclusive_owners import gone_with_owners
from rabbitmq_resilience.checkers.fan_out import Shards
from rabbitmq_resilience.checkers.loss_explanations import most_explained
from rabbitmq_resilience.checkers.loss_permits import LossPermit, loss_permits
from rabbitmq_resilience.checkers.message_ledger import Flags, Ledger, Messages, QueueColumn, ledger_of, nothing_after
from rabbitmq_resilience.checkers.mirror_losses import lost_with_a_mirror_up
from rabbitmq_resilience.checkers.power_losses import lost_from_listed_queues, lost_without_power_cut
from rabbitmq_resilience.checkers.times import periods
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.unrouted import skipped_bindings
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.history import Outcome


class NoLoss(InvariantSpec):
    """lost: confirmed and not received. unexpected: received and never attempted, or not intact. Both are INVALID.
    Losses that the partition handling permits, as on the losing side of ``autoheal``, are counted apart; with
    ``split_losses: judged`` they are INVALID too, although the mode does not promise to prevent them.

    A message that comes unmarked, and had come unmarked before from the same queue, is INVALID too. It is allowed if
    brokers that have, or may come to have, a copy of the queue were disturbed after the last of these receipts, or
    until 10 s and 1.25 times ``net_ticktime`` before it. A disturbance is a step that takes such brokers away, starves
    them, acts on links to them or moves leaders; brokers that were not seen up; or a new leader of the queue. If only
    clients are disturbed, brokers mark what they deliver again.

    A message that is routed to several queues is owed, and counted, for each of them. The queues of a consistent hash
    exchange owe it together: it may come from any one of them. While the node of a classic queue is away, brokers route
    to the other queues alone, and confirm. What such a queue lacks is counted apart, like losses of a split. A message
    that arrives as a dead letter, and not from its queue, is not lost. Queues may drop messages while dead letters come
    at most once and brokers were disturbed; these are counted apart. So are losses after a stored file was damaged, if
    no majority without that file is known to have had the message. If no message was received after a fault had begun,
    and none is lost, nothing is known of that fault's effect, and the verdict is UNKNOWN.

    Reported, and legal: recovered (outcome unknown, yet received), nacked yet received, returned, and duplicates, split
    by whether the broker marked them as redelivered.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"watched", "faults_begun"})

    split_losses: Literal["permitted", "judged"] = "permitted"

    def check(self, history: History) -> Finding:
        ledger = ledger_of(history)
        counts = _counts(ledger)
        splits_may = self.split_losses == "permitted"
        permitted: Chosen = {}
        reasons: tuple[str, ...] = ()
        if counts["lost"]:
            permitted, reasons, left = _permitted(history, ledger, splits_may=splits_may)
            if left.queue.size:
                counts |= lost_without_power_cut(history, left.queue, left.sent_us, ledger.shards)
                counts |= lost_from_listed_queues(history, left.queue, left.sent_us)
                counts |= lost_with_a_mirror_up(history.facts, left.queue, left.sent_us, ledger.shards)
        counts["lost_permitted"] = sum(int(np.count_nonzero(flags)) for flags in permitted.values())
        counts["lost"] -= counts["lost_permitted"]
        unexpected = counts["unexpected"]
        coverage = Coverage(counts["confirmed"] - counts["lost_permitted"], counts["confirmed"], "messages")
        decided = counts["lost"] or counts["lost_permitted"] or not counts["confirmed"]
        unseen = "" if decided else nothing_after(history, ledger)
        doubled = forbidden(history, ledger) if counts["duplicates_unmarked"] else ()
        counts["duplicates_forbidden"] = len(doubled)
        wrong = counts["lost"] or unexpected or doubled
        summary = (
            f"{counted(counts['confirmed'], 'message was', 'messages were')} {_owed_since(history)}; "
            f"{counts['lost']} of them never arrived"
        )
        if counts["lost_permitted"]:
            summary += f", and {counts['lost_permitted']} more that may be lost: {'; '.join(reasons)}"
        if doubled:
            summary += f", and {len(doubled)} arrived twice, unmarked, though nothing can have made them come again"
        if unexpected:
            summary += f", and {unexpected} arrived that were never sent, were broken or came from another queue"
        if unseen and not wrong:
            return Finding(Verdict.UNKNOWN, f"{unseen}; in the observed time, {summary}", counts, (), coverage)
        return Finding(
            Verdict.INVALID if wrong else Verdict.VALID,
            summary,
            counts,
            tuple(_examples(history, ledger, permitted, doubled))[:EXAMPLES_MAX] if wrong else (),
            coverage,
        )


def _owed_since(history: History) -> str:
    """Return in words since when messages are owed: since their confirm, or since they were sent if publishers heed
    none."""
    return "confirmed" if history.facts.heeds_confirms else "sent, with no confirm awaited"


#: By publisher and lane: a flag for each sequence.
Chosen = dict[tuple[int, int], Flags]


def _permitted(history: History, ledger: Ledger, *, splits_may: bool) -> tuple[Chosen, tuple[str, ...], _Rows]:
    """Return the lost messages whose loss is permitted where and when they were confirmed, the reasons, and the others.
    With ``splits_may`` losses by a split are permitted, and messages that brokers do not route while a node is away."""
    facts = history.facts
    lost = _lost_rows(history, ledger)
    concerned = {shard for queue in set(lost.queue.tolist()) for shard in ledger.shards.group_of(queue)}
    permits = list(loss_permits(facts, concerned & {*range(len(facts.queues))})) if splits_may else []
    excused = np.zeros(len(lost.queue), np.bool_)
    reasons: dict[str, None] = {}
    others = [
        *lost_as_letters(history, lost.publisher, lost.lane, lost.sequence),
        *gone_with_owners(history, lost.publisher, lost.sequence, lost.queue, lost.sent_us),
        *lost_with_files(history, lost.queue, lost.sent_us, ledger.shards),
    ]
    for reason, mine in others:
        excused |= mine
        if mine.any():
            reasons[reason] = None
    choices = [[_covered(lost, choice, ledger.shards) for choice in sets] for _, sets in permits]
    for (reason, _), mine in zip(permits, most_explained(choices), strict=True):
        if mine.any():
            reasons[reason] = None
        excused |= mine
    for reason, mine in skipped_bindings(history, ledger, lost._asdict(), excused) if splits_may else ():
        excused |= mine
        reasons[reason] = None
    chosen: Chosen = {}
    kept = [column[excused] for column in (lost.publisher, lost.lane, lost.sequence)]
    for (publisher, lane), rows in grouped(*kept[:2]) if excused.any() else ():
        flags = np.zeros(len(ledger.messages[publisher].outcome), np.bool_)
        flags[kept[2][rows]] = True
        chosen[publisher, lane] = flags
    return chosen, tuple(reasons), _Rows(*(column[~excused] for column in lost))


class _Rows(NamedTuple):
    publisher: Array
    lane: Array
    sequence: Array
    queue: Array
    node: Array
    sent_us: Array
    outcome_us: Array


def _lost_rows(history: History, ledger: Ledger) -> _Rows:
    found = []
    for piece in pieces(history.publishes(), *_Rows._fields):
        lost = np.zeros(len(piece[0]), np.bool_)
        for (name, number), rows in grouped(*piece[:2]):
            of_publisher = ledger.messages[name]
            lost[rows] = of_publisher.lost(of_publisher.lanes[number])[piece[2][rows]]
        found.append([column[lost] for column in piece])
    none = [np.zeros(0, np.int64)] * len(_Rows._fields)
    return _Rows(*map(np.concatenate, zip(*(found or [none]), strict=True)))


def _covered(lost: _Rows, permits: Sequence[LossPermit], shards: Shards) -> Flags:
    """Return which lost messages the permits cover. It is not known which shard took a lost message."""
    covered = np.zeros(len(lost.queue), np.bool_)
    queue = shards.first(lost.queue)
    for permit in permits:
        mine = (queue == shards.first_of(permit.queue)) & (lost.node == permit.node)
        for start_us, end_us in periods(permit.confirmed_us) if mine.any() else ():
            covered |= mine & (lost.outcome_us >= start_us) & (lost.outcome_us < end_us)
    return covered


def _lanes(ledger: Ledger) -> Iterator[tuple[Messages, QueueColumn]]:
    return ((messages, lane) for messages in ledger.messages.values() for lane in messages.lanes)


def _counts(ledger: Ledger) -> dict[str, int]:
    names = ("attempted", "confirmed", "received", "lost", "unknown", "recovered", "nacked")
    counts = dict.fromkeys((*names, "nacked_received", "returned"), 0)
    fresh = 0
    for m, lane in _lanes(ledger):
        there = lane.there
        confirmed, unknown, nacked, returned = (
            (m.outcome == o) & there for o in (Outcome.CONFIRMED, Outcome.UNKNOWN, Outcome.NACKED, Outcome.RETURNED)
        )
        seen = {
            "attempted": m.attempted(lane),
            "confirmed": confirmed,
            "received": lane.received,
            "lost": m.lost(lane),
            "unknown": unknown,
            "recovered": unknown & lane.received,
            "nacked": nacked,
            "nacked_received": nacked & lane.received,
            "returned": returned,
        }
        for name, which in seen.items():
            counts[name] += int(np.count_nonzero(which))
        fresh += int(np.count_nonzero(lane.fresh))
    unmarked = ledger.read_fresh - fresh
    return counts | {
        "unexpected": ledger.strange + ledger.broken + ledger.misrouted,
        "broken": ledger.broken,
        "misrouted": ledger.misrouted,
        "duplicates_redelivered": ledger.read - counts["received"] - unmarked,
        "duplicates_unmarked": unmarked,
    }


def _examples(history: History, ledger: Ledger, permitted: Chosen, doubled: Sequence[Duplicate]) -> Iterator[str]:
    facts = history.facts
    lost = list(itertools.islice(_missing(ledger, permitted), EXAMPLES_MAX))
    columns = ("lane", "queue", "sent_us", "outcome_us", "node")
    for row in matching(history.publishes(), _wanted([key[:2] for key in lost]), *columns):
        if (row["publisher"], row["sequence"], row["lane"]) not in lost:
            continue
        sent_us, confirmed_us, by = row["sent_us"], row["outcome_us"], facts.node_name(row["node"])
        fate = f", confirmed {facts.at(confirmed_us)} by {by}" if facts.heeds_confirms else f" to {by}"
        yield (
            f"lost: publisher {row['publisher']} sequence {row['sequence']} to {facts.queue_name(row['queue'])}, "
            f"sent {facts.at(sent_us)}{fate}, "
            f"phase {facts.phase_at(sent_us)}, {facts.faults_during(sent_us, confirmed_us)}"
        )
    for row in matching(history.deliveries(), _wanted(ledger.strangers), "queue", "received_us", "consumer"):
        yield (
            f"unexpected: publisher {row['publisher']} sequence {row['sequence']}, never sent, was received from "
            f"{facts.queue_name(row['queue'])} by consumer {row['consumer']} at {facts.at(row['received_us'])}"
        )
    if ledger.broken:
        yield (
            f"unexpected: {counted(ledger.broken, 'delivery was', 'deliveries were')} not intact (header or checksum "
            "wrong, or of another run)"
        )
    for one in doubled[:EXAMPLES_MAX]:
        yield (
            f"duplicate: publisher {one.publisher} sequence {one.sequence} was received from "
            f"{facts.queue_name(one.queue)} at {facts.at(one.before_us)}, and again by consumer {one.consumer} at "
            f"{facts.at(one.received_us)}, without the redelivered flag, "
            f"{facts.faults_during(one.before_us, one.received_us)}"
        )
    if ledger.misrouted:
        came = counted(ledger.misrouted, "delivery came", "deliveries came")
        yield f"unexpected: {came} from a queue to which no such message was sent"


def _missing(ledger: Ledger, permitted: Chosen) -> Iterator[tuple[int, int, int]]:
    """Yield (publisher, sequence, lane) of each message that is lost without a permit."""
    for publisher, m in sorted(ledger.messages.items()):
        for number, lane in enumerate(m.lanes):
            lost = m.lost(lane)
            if (publisher, number) in permitted:
                lost &= ~permitted[publisher, number]
            yield from ((publisher, sequence, number) for sequence in np.flatnonzero(lost).tolist())


def _wanted(keys: Sequence[tuple[int, int]]) -> npt.NDArray[np.uint64]:
    table = np.array(keys, np.uint64).reshape(-1, 2)
    return messages(table[:, 0], table[:, 1])
