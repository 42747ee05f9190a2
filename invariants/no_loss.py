"""Every message that was confirmed and not returned arrives, and nothing arrives that was not sent."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from invariants.columns import grouped, matching, messages, pieces
from invariants.facts import Facts
from invariants.ledger import Flags, Ledger, Messages, ledger_of
from invariants.splits import loss_permits
from invariants.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Verdict
from reports.history import Outcome


class NoLoss(InvariantSpec):
    """lost: confirmed and not received. unexpected: received and never attempted, or not intact. Both are INVALID,
    but for losses that the partition handling permits (``invariants.splits``): these are counted apart, unless
    ``split_losses: judged`` demands what the mode does not promise.

    Unmarked duplicates are INVALID too in a run without any fault.

    Reported, and legal: recovered (outcome unknown, yet received), nacked yet received, returned, and duplicates,
    split by whether the broker marked them as redelivered.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"watched"})

    split_losses: Literal["permitted", "judged"] = "permitted"

    def check(self, history: History) -> Finding:
        ledger = ledger_of(history)
        counts = _counts(ledger)
        excused = counts["lost"] and self.split_losses == "permitted"
        permitted, reasons = _permitted(history, ledger) if excused else (_NONE, ())
        counts["lost_permitted"] = len(permitted)
        counts["lost"] -= len(permitted)
        unexpected = counts["unexpected"]
        doubled = 0 if Facts(history.events).steps else counts["duplicates_unmarked"]
        wrong = counts["lost"] or unexpected or doubled
        summary = f"{counts['confirmed']} messages were confirmed; {counts['lost']} of them never arrived"
        if len(permitted):
            summary += f", and {len(permitted)} more that may be lost: {'; '.join(reasons)}"
        if doubled:
            summary += f", and {doubled} arrived twice, unmarked, though nothing had happened"
        if unexpected:
            summary += f", and {unexpected} arrived that were never sent, were broken or came from another queue"
        return Finding(
            Verdict.INVALID if wrong else Verdict.VALID,
            summary,
            counts,
            tuple(_examples(history, ledger, permitted, doubled))[:EXAMPLES_MAX] if wrong else (),
        )


Keys = npt.NDArray[np.uint64]
_NONE: Keys = np.zeros(0, np.uint64)


def _permitted(history: History, ledger: Ledger) -> tuple[Keys, tuple[str, ...]]:
    """The lost messages that were confirmed where and when a loss is permitted, and why it is."""
    permits = loss_permits(Facts(history.events))
    reasons: dict[str, None] = {}
    found = [_NONE]
    columns = ("publisher", "sequence", "queue", "node", "outcome_us")
    for piece in pieces(history.publishes(), *columns) if permits else ():
        lost = np.zeros(len(piece[0]), np.bool_)
        for (name,), rows in grouped(piece[0]):
            lost[rows] = _lost(ledger.messages[name])[piece[1][rows]]
        publisher, sequence, queue, node, outcome_us = (column[lost] for column in piece)
        excused = np.zeros(len(publisher), np.bool_)
        for permit in permits if len(publisher) else ():
            start_us, end_us = permit.confirmed_us
            mine = (queue == permit.queue) & (node == permit.node)
            mine &= (outcome_us >= start_us) & (outcome_us < end_us)
            excused |= mine
            if mine.any():
                reasons[permit.reason] = None
        found.append(messages(publisher[excused], sequence[excused]))
    return np.concatenate(found), tuple(reasons)


def _lost(of_publisher: Messages) -> Flags:
    lost: Flags = (of_publisher.outcome == Outcome.CONFIRMED) & ~of_publisher.received
    return lost


def _counts(ledger: Ledger) -> dict[str, int]:
    names = ("attempted", "confirmed", "received", "lost", "unattempted", "unknown", "recovered", "nacked")
    counts = dict.fromkeys((*names, "nacked_received", "returned"), 0)
    fresh = 0
    for m in ledger.messages.values():
        confirmed, unknown, nacked = (m.outcome == o for o in (Outcome.CONFIRMED, Outcome.UNKNOWN, Outcome.NACKED))
        seen = {
            "attempted": m.attempted,
            "confirmed": confirmed,
            "received": m.received,
            "lost": _lost(m),
            "unattempted": m.received & ~m.attempted,
            "unknown": unknown,
            "recovered": unknown & m.received,
            "nacked": nacked,
            "nacked_received": nacked & m.received,
            "returned": m.outcome == Outcome.RETURNED,
        }
        for name, which in seen.items():
            counts[name] += int(np.count_nonzero(which))
        fresh += int(np.count_nonzero(m.fresh))
    unexpected = counts.pop("unattempted") + ledger.strange + ledger.broken + ledger.misrouted
    unmarked = ledger.read_fresh - fresh
    return counts | {
        "unexpected": unexpected,
        "broken": ledger.broken,
        "misrouted": ledger.misrouted,
        "duplicates_redelivered": ledger.read - counts["received"] - unmarked,
        "duplicates_unmarked": unmarked,
    }


def _examples(history: History, ledger: Ledger, permitted: Keys, doubled: int) -> Iterator[str]:
    facts = Facts(history.events)
    lost, unattempted = [], []
    for publisher, m in sorted(ledger.messages.items()):
        missing = np.flatnonzero(_lost(m))
        missing = missing[~np.isin(messages(np.full(len(missing), publisher), missing.astype(np.uint64)), permitted)]
        lost += [(publisher, n) for n in missing[:EXAMPLES_MAX].tolist()]
        unattempted += [(publisher, n) for n in np.flatnonzero(m.received & ~m.attempted)[:EXAMPLES_MAX].tolist()]
    columns = ("queue", "sent_us", "outcome_us", "node")
    for row in matching(history.publishes(), _wanted(lost[:EXAMPLES_MAX]), *columns):
        sent_us, confirmed_us = row["sent_us"], row["outcome_us"]
        yield (
            f"lost: publisher {row['publisher']} sequence {row['sequence']} to {facts.queue_name(row['queue'])}, "
            f"sent {facts.at(sent_us)}, confirmed {facts.at(confirmed_us)} by {facts.node_name(row['node'])}, "
            f"phase {facts.phase_at(sent_us)}, {facts.beside(sent_us, confirmed_us)}"
        )
    strangers = [*unattempted, *ledger.strangers][:EXAMPLES_MAX]
    for row in matching(history.deliveries(), _wanted(strangers), "queue", "received_us", "consumer"):
        yield (
            f"unexpected: publisher {row['publisher']} sequence {row['sequence']}, never sent, was received from "
            f"{facts.queue_name(row['queue'])} by consumer {row['consumer']} at {facts.at(row['received_us'])}"
        )
    if ledger.broken:
        yield f"unexpected: {ledger.broken} deliveries were not intact (header or checksum wrong, or of another run)"
    for row in itertools.islice(_repeats(history, ledger), EXAMPLES_MAX) if doubled else ():
        yield (
            f"duplicate: publisher {row['publisher']} sequence {row['sequence']} was received again from "
            f"{facts.queue_name(row['queue'])} by consumer {row['consumer']} at {facts.at(row['received_us'])}, "
            "without the redelivered flag, beside no fault"
        )
    if ledger.misrouted:
        yield f"unexpected: {ledger.misrouted} deliveries came from another queue than their messages were sent to"


def _repeats(history: History, ledger: Ledger) -> Iterator[Mapping[str, int]]:
    """The deliveries without the redelivered flag of messages that had come without it before, by column name."""
    seen = {publisher: np.zeros(len(m.fresh), np.bool_) for publisher, m in ledger.messages.items()}
    columns = ("publisher", "sequence", "queue", "consumer", "received_us", "redelivered", "intact")
    for piece in pieces(history.deliveries(), *columns):
        *told, redelivered, intact = piece
        fresh = [column[intact & ~redelivered] for column in told]
        for (publisher,), rows in grouped(fresh[0]) if len(fresh[0]) else ():
            mine = [column[rows] for column in fresh]
            mine = [column[mine[1] < len(seen[publisher])] for column in mine]
            again = np.ones(len(mine[1]), np.bool_)
            again[np.unique(mine[1], return_index=True)[1]] = False
            again |= seen[publisher][mine[1]]
            seen[publisher][mine[1]] = True
            for values in zip(*(column[again].tolist() for column in mine), strict=True):
                yield dict(zip(columns, values, strict=False))


def _wanted(keys: Sequence[tuple[int, int]]) -> npt.NDArray[np.uint64]:
    table = np.array(keys, np.uint64).reshape(-1, 2)
    return messages(table[:, 0], table[:, 1])
