"""Follow each publish and each delivery of an application through the rows of a tap."""

from __future__ import annotations

from dataclasses import dataclass

from rabbitmq_resilience.tap.wire_history import Kind, Mode, Row
from tests.invariants.literal import us
from tests.invariants.references.application_played import ASKED_S, DRAINED_S, ENDED_S, Case

#: What ends a consumer.
ENDS = frozenset({"lost", "closed", "connection_closed", "channel_closed"})


@dataclass
class Sent:
    """A publish, and what became of it."""

    row: Row
    process: str
    outcome: str


@dataclass
class Got:
    """A delivery. ``settled`` and ``requeued``: whether a later row says so. ``back``: it went back to its queue."""

    row: Row
    process: str
    settled: bool
    requeued: bool
    back: bool


def covers(row: Row, tag: int) -> bool:
    """Whether a row settles a tag: its own, or all up to it; 0 with ``multiple`` means all."""
    return row.tag == tag or (row.multiple and (row.tag == 0 or tag < row.tag))


def sent_of(case: Case) -> list[Sent]:
    """Return all publishes, each with its outcome."""
    process_of = {number: fields["process"] for _, number, what, _, fields in case.wire if what == "opened"}
    returned: set[int] = set()
    found = []
    for number, row in enumerate(case.rows):
        if row.kind is not Kind.PUBLISHED:
            continue
        outcome, was_returned = "unknown", False
        for later_number, later in enumerate(case.rows[number + 1 :], number + 1):
            if (later.connection, later.session) != (row.connection, row.session):
                continue
            same = (later.place, later.routing_key, later.identity) == (row.place, row.routing_key, row.identity)
            may_return = not was_returned and (row.mode is not Mode.PLAIN or row.flag)
            if later.kind is Kind.RETURNED and same and may_return and later_number not in returned:
                was_returned = True
                returned.add(later_number)
                outcome = "returned" if row.mode is Mode.PLAIN else outcome
            if row.mode is Mode.CONFIRMS and later.kind in (Kind.CONFIRMED, Kind.NACKED) and covers(later, row.tag):
                outcome = "confirmed" if later.kind is Kind.CONFIRMED else "nacked"
                break
            if row.mode is Mode.TRANSACTIONS and later.kind in (Kind.COMMITTED, Kind.ROLLED_BACK):
                outcome = "confirmed" if later.kind is Kind.COMMITTED else "nacked"
                break
        outcome = "returned" if was_returned and outcome == "confirmed" else outcome
        if row.mode is Mode.PLAIN and case.judged and outcome == "unknown":
            outcome = "confirmed"
        found.append(Sent(row, process_of[row.connection], outcome))
    return found


def got_of(case: Case) -> list[Got]:
    """Return all deliveries, each with what became of it."""
    process_of = {number: fields["process"] for _, number, what, _, fields in case.wire if what == "opened"}
    found = []
    for number, row in enumerate(case.rows):
        if row.kind not in (Kind.DELIVERED, Kind.GOT):
            continue
        settled, requeued = row.mode is Mode.AUTOMATIC, False
        for later in case.rows[number + 1 :] if not settled else ():
            mine = (later.connection, later.session) == (row.connection, row.session)
            if mine and later.kind in (Kind.ACKED, Kind.REJECTED) and covers(later, row.tag):
                settled, requeued = True, later.kind is Kind.REJECTED and later.flag
                break
        ended_s = [at_s for at_s, number, what, _, _ in case.wire if number == row.connection and what in ENDS]
        late = row.t_us >= us(DRAINED_S)
        back = not settled and bool(ended_s) and (min(ended_s) < ENDED_S or late)
        found.append(Got(row, process_of[row.connection], settled, requeued, back))
    return found


def gone_of(case: Case) -> set[str]:
    """Return the queues that the application deleted, purged or unbound since the broker was asked for them."""
    whats = ("queue_deleted", "queue_purged", "queue_unbound")
    return {fields["queue"] for at_s, _, what, _, fields in case.wire if what in whats and at_s >= ASKED_S}
