"""Judge what an application says of its work, and the order of its messages, by looking at each pair of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rabbitmq_resilience.tap.wire_history import Kind, Mode, Row
from tests.invariants.literal import us
from tests.invariants.references.application_played import DRAINED_S, PLACES, PROCESSES, Case, reached_by
from tests.invariants.references.application_rows import ENDS, Got, Sent, covers, gone_of


def committed_verdict(case: Case, sent: Sequence[Sent]) -> tuple[str, tuple[int, ...]]:
    """Return whether each message that was acknowledged was committed; and how many were acknowledged, not committed,
    and acknowledged first, and how many commits name no message that came."""
    came = {row.identity for row in case.rows if row.kind in (Kind.DELIVERED, Kind.GOT)}
    unmatched = sum(identity not in came for _, identity, _ in case.work)
    counts, lost = [0, 0], set()
    bodies: dict[int, list[int]] = {}
    for number, row in enumerate(case.rows):
        if row.kind not in (Kind.DELIVERED, Kind.GOT) or row.t_us >= us(DRAINED_S):
            continue
        same = [
            one.row
            for one in sent
            if (one.row.identity, one.row.body) == (row.identity, row.body) and one.outcome == "confirmed"
            if one.row.named and one.row.mode is not Mode.PLAIN
        ]
        at_us = acknowledged_us(case, number)
        if not case.work or not same or at_us is None:
            continue
        moments = [at_s for _, identity, at_s in case.work if identity == row.identity]
        late = all(at_s is not None and us(at_s) > at_us + 2_000 for at_s in moments)
        if late and any(one.t_us >= row.t_us for one in same):  # all processes are one program
            continue
        counts[0] += 1
        known = bodies.setdefault(row.identity, [])
        known += [row.body] if row.body not in known else []
        if len(moments) <= known.index(row.body):
            lost.add((row.identity, row.body))
        counts[1] += bool(moments) and late and row.mode is not Mode.AUTOMATIC
    numbers = (counts[0], len(lost), counts[1], unmatched)
    if not counts[0] or len(case.work) == unmatched:
        return "UNKNOWN", numbers
    unclear = len(lost) <= (case.unread if is_able(case, PROCESSES[1]) else 0) + unmatched
    return "VALID" if not lost else "UNKNOWN" if unclear else "INVALID", numbers


def is_able(case: Case, process: str) -> bool:
    """Return whether a process got a message, or said that it committed one."""
    mine = {number for _, number, what, _, fields in case.wire if what == "opened" and fields["process"] == process}
    got = any(row.connection in mine for row in case.rows if row.kind in (Kind.DELIVERED, Kind.GOT))
    return got or any(by == process for by, _, _ in case.work)


def acknowledged_us(case: Case, number: int) -> int | None:
    """Return when a delivery was acknowledged; None if it was not, or was rejected."""
    row = case.rows[number]
    if row.mode is Mode.AUTOMATIC:
        return row.t_us
    for later in case.rows[number + 1 :]:
        mine = (later.connection, later.session) == (row.connection, row.session)
        if mine and later.kind in (Kind.ACKED, Kind.REJECTED) and covers(later, row.tag):
            return later.t_us if later.kind is Kind.ACKED else None
    return None


def order_verdict(case: Case, sent: Sequence[Sent], got: Sequence[Got]) -> tuple[str, tuple[int, ...]]:
    """Return whether messages of one channel came in order; and how many could be judged, came to several consumers,
    are equal to others, and came after a later one."""
    names = [name for name in PLACES if name not in gone_of(case)]
    known = {one.row.identity for one in sent}
    deliveries = [one.row for one in got if one.row.place in names and one.row.identity in known]
    judged: list[tuple[Row, int]] = []
    shared = equal = 0
    for number, row in enumerate(deliveries):
        same = [place for place, one in enumerate(sent) if one.row.identity == row.identity]
        if not is_alone(case, row.connection, row.place):
            shared += 1
        elif len(same) > 1:
            equal += 1
        elif not came_before(deliveries[:number], row) and is_promised(sent[same[0]], row.place):
            judged.append((row, same[0]))
    overtaken = sum(
        any(in_one_order(sent, one, other) and place > mine for other, place in judged[:number])
        for number, (one, mine) in enumerate(judged)
    )
    numbers = (len(judged), shared, equal, overtaken)
    if not judged or (not overtaken and judged[-1][0].t_us < us(20)):
        return "UNKNOWN", numbers
    return "INVALID" if overtaken else "VALID", numbers


def came_before(earlier: Sequence[Row], row: Row) -> bool:
    """Whether a message came from its queue before, or is marked as if it had."""
    return row.flag or any((one.identity, one.place) == (row.identity, row.place) for one in earlier)


def is_promised(one: Sent, queue: str) -> bool:
    """Whether the order of a message in a queue is promised."""
    taken = one.outcome == "confirmed" or (one.row.mode is Mode.PLAIN and one.outcome != "returned")
    return taken and queue in reached_by((one.row.place, one.row.routing_key))


def in_one_order(sent: Sequence[Sent], one: Row, other: Row) -> bool:
    """Whether two messages came through one queue from one channel to one channel, with one priority."""
    mine, its = (next(each.row for each in sent if each.row.identity == row.identity) for row in (one, other))
    ways = [
        (a.connection, a.session, a.place, a.priority, b.connection, b.session, b.place)
        for a, b in ((mine, one), (its, other))
    ]
    return ways[0] == ways[1]


def readers_of(case: Case, queue: str) -> list[tuple[float, float, int]]:
    """Return (from, to, connection) of each that read a queue."""
    found = []
    for at_s, number, what, _, fields in case.wire:
        if what == "consuming" and fields["queue"] == queue:
            ends_us = [us(end_s) for end_s, of, how, _, _ in case.wire if of == number and how in ENDS]
            found.append((float(us(at_s)), min(ends_us, default=math.inf), number))
    subscribed = {number for _, _, number in found}
    rows = [row for row in case.rows if row.kind in (Kind.DELIVERED, Kind.GOT) and row.place == queue]
    for number in {row.connection for row in rows} - subscribed:
        moments = [float(row.t_us) for row in rows if row.connection == number]
        found.append((min(moments), max(moments), number))
    return found


def is_alone(case: Case, connection: int, queue: str) -> bool:
    """Whether a connection never read a queue while another consumer did."""
    readers = readers_of(case, queue)
    mine = [one for one in readers if one[2] == connection]
    return all(one is other or one[0] > other[1] or other[0] > one[1] for one in mine for other in readers)
