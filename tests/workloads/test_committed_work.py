"""What an application committed of the messages that it acknowledged: early, late, never, or by another process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.tap.wire_history import Kind, Mode, Row
from rabbitmq_resilience.workload.committed_work import EARLY_US, CommittedWork
from rabbitmq_resilience.workload.wire_messages import WireMessages
from rabbitmq_resilience.workload.work_lines import COMMITTED, WORKED_ON, WorkLine, WorkOfProcess
from tests.tap.records import write

PROCESSES = ("web-0", "job-0", "job-1", "other-0")
#: The moment 0 of the record, in epoch seconds.
EPOCH_S = 1_000.0
DRAINED_US = 900_000


def published(identity: int, **fields: Any) -> list[Row]:
    """A message and its confirm."""
    given = {"tag": identity, "mode": Mode.CONFIRMS, "routing_key": "q", "body": identity, "named": True, **fields}
    return [
        Row(100 + identity, 0, 0, Kind.PUBLISHED, identity=identity, **given),
        Row(200 + identity, 0, 0, Kind.CONFIRMED, tag=identity),
    ]


def got(t_us: int, identity: int, *, by: int = 1, **fields: Any) -> Row:
    given = {"tag": identity, "place": "q", "body": identity, "named": True, **fields}
    return Row(t_us, by, 0, Kind.DELIVERED, identity=identity, **given)


def settled(t_us: int, tag: int, *, by: int = 1, kind: Kind = Kind.ACKED, requeue: bool = False) -> Row:
    return Row(t_us, by, 0, kind, tag=tag, flag=requeue)


def line(identity: int, at_us: int | None = None, event: str = COMMITTED) -> WorkLine:
    return WorkLine(event, str(identity), None if at_us is None else EPOCH_S + at_us / 1e6)


def committed(
    folder: Path, rows: Sequence[Row], *, epoch_us: int | None = -int(EPOCH_S * 1e6), **work: WorkOfProcess
) -> CommittedWork:
    """Convert rows of one connection for each process, and what processes wrote: ``job_0`` for job-0."""
    folder.mkdir(exist_ok=True)
    write(folder, rows, processes=PROCESSES)
    messages = WireMessages(folder)
    messages.complete(asked_us=1_000_000)
    written = {process: work.get(process.replace("-", "_"), WorkOfProcess()) for process in PROCESSES}
    return CommittedWork(messages, written, int, drained_us=DRAINED_US, epoch_us=epoch_us)


def wrote(*lines: WorkLine) -> WorkOfProcess:
    return WorkOfProcess(list(lines))


def test_a_message_that_was_acknowledged_and_never_committed_is_lost(tmp_path: Path) -> None:
    """Of a program, any process counts: the one that lost it may have written nothing yet."""
    rows = [*published(1), *published(2), got(300, 1), got(400, 2, by=2), settled(500, 1), settled(600, 2, by=2)]
    work = committed(tmp_path, rows, job_0=wrote(line(1, 450), line(1, 400, WORKED_ON)))
    numbers = work.by_process()
    assert set(numbers) == {"job-0", "job-1"}
    assert (numbers["job-0"]["acknowledged"], numbers["job-0"]["uncommitted"]) == (1, 0)
    assert (numbers["job-0"]["worked_on"], numbers["job-0"]["committed"]) == (1, 1)
    assert (numbers["job-1"]["acknowledged"], numbers["job-1"]["uncommitted"]) == (1, 1)
    assert list(work.events()) == [{"t_us": 600, "process": "job-1", "queue": "q"}]


def test_a_message_that_another_process_committed_is_not_lost(tmp_path: Path) -> None:
    """The first process lost its connection after the work; the second knows that there is nothing to do."""
    rows = [*published(1), got(300, 1), got(400, 1, by=2, flag=True), settled(500, 1, by=2)]
    work = committed(tmp_path, rows, job_0=wrote(line(1, 350)), job_1=wrote(line(7)))
    assert not list(work.events())
    assert work.by_process()["job-1"]["unmatched"] == 1


def test_a_message_that_is_taken_again_after_its_loss_is_lost_once(tmp_path: Path) -> None:
    rows = [*published(1), *(got(t_us, 1, tag=t_us) for t_us in (300, 400)), settled(500, 300), settled(500, 400)]
    work = committed(tmp_path, [*rows, *published(2), got(600, 2), settled(601, 2)], job_0=wrote(line(2)))
    assert [event["t_us"] for event in work.events()] == [500]


def test_a_program_does_not_commit_the_copy_of_another(tmp_path: Path) -> None:
    """A fan-out brings a message to two queues. Where programs share a queue, any of them may have committed it."""
    rows = [*published(1), *published(2), got(300, 1), settled(500, 1), got(310, 2), settled(510, 2)]
    copy = [got(300, 1, by=3, place="q2"), settled(400, 1, by=3)]
    own, other = wrote(line(2, 400)), wrote(line(1, 350))
    assert [one["queue"] for one in committed(tmp_path / "1", [*rows, *copy], job_0=own, other_0=other).events()] == [
        "q"
    ]
    shared = [row._replace(place="q") if row.place else row for row in copy]
    assert not list(committed(tmp_path / "2", [*rows, *shared], job_0=own, other_0=other).events())


def test_a_program_that_gets_its_work_another_way_may_commit_it(tmp_path: Path) -> None:
    rows = [*published(1), *published(2), got(300, 1), settled(500, 1), got(310, 2), settled(510, 2)]
    assert not list(committed(tmp_path, rows, job_0=wrote(line(2)), other_0=wrote(line(1))).events())


def test_messages_that_share_a_message_id_need_a_commit_each(tmp_path: Path) -> None:
    """With another body it is another message; with the same it is one, however often it comes."""
    other = [row._replace(tag=9, body=7 if row.kind is Kind.PUBLISHED else 0) for row in published(1)]
    rows = [*published(1), *other, got(300, 1), got(310, 1, tag=2, body=7), got(320, 1, tag=3), settled(500, 1)]
    rows += [settled(600, 2), settled(700, 3)]
    assert [one["t_us"] for one in committed(tmp_path / "1", rows, job_0=wrote(line(1))).events()] == [600]
    assert not list(committed(tmp_path / "2", rows, job_0=wrote(line(1), line(1))).events())


@pytest.mark.parametrize(("body", "lost"), [(1, []), (7, [500])])
def test_a_message_that_is_published_again_before_it_is_acknowledged_waits(
    body: int, lost: list[int], tmp_path: Path
) -> None:
    """So do programs that try again later. A message with another body says nothing of the first."""
    again = [row._replace(t_us=row.t_us + 250, connection=2, body=body) for row in published(1)]
    rows = [*published(1), *published(2), got(300, 1), *again, settled(500, 1), got(310, 2), settled(510, 2)]
    work = committed(tmp_path / "1", rows, job_0=wrote(line(2, 400)))
    assert [one["t_us"] for one in work.events()] == lost
    rows += [got(600, 1, tag=3, body=body), settled(9_000, 3)]
    found = committed(tmp_path / "2", rows, job_0=wrote(line(2, 400), line(1, 8_000)))
    assert found.by_process()["job-0"]["early"] == (1 if lost else 0)
    assert [one["t_us"] for one in committed(tmp_path / "3", rows, job_0=wrote(line(2))).events()] == [*lost, 9_000]


#: By what it is, the rows of a message that need not be committed.
NOT_OWED = {
    "not confirmed": [published(1)[0], got(300, 1), settled(400, 1)],
    "without message_id": [*published(1, named=False), got(300, 1), settled(400, 1)],
    "rejected": [*published(1), got(300, 1), settled(400, 1, kind=Kind.REJECTED)],
    "rejected to come again": [*published(1), got(300, 1), settled(400, 1, kind=Kind.REJECTED, requeue=True)],
    "not acknowledged": [*published(1), got(300, 1)],
    "of another program": [*published(1), got(300, 1, by=3), settled(400, 1, by=3)],
    "after the drain": [*published(1), got(DRAINED_US, 1), settled(DRAINED_US + 5, 1)],
}


@pytest.mark.parametrize("what", NOT_OWED)
def test_what_need_not_be_committed_is_not_said_to_be_lost(what: str, tmp_path: Path) -> None:
    sound = [*published(2), got(500, 2), settled(600, 2)]
    work = committed(tmp_path, [*NOT_OWED[what], *sound], job_0=wrote(line(2)))
    assert not list(work.events())
    assert work.by_process()["job-0"]["acknowledged"] == 1


def test_a_message_that_counts_as_acknowledged_when_it_is_sent_must_be_committed(tmp_path: Path) -> None:
    rows = [*published(1), got(300, 1, mode=Mode.AUTOMATIC), *published(2), got(300, 2, mode=Mode.AUTOMATIC)]
    work = committed(tmp_path, rows, job_0=wrote(line(2, 90_000)))
    assert [event["t_us"] for event in work.events()] == [300]
    assert work.by_process()["job-0"]["early"] == 0  # this is advised against anyway


@pytest.mark.parametrize(
    ("late_us", "epoch_us", "early"),
    [(EARLY_US - 100, -int(1e9), 0), (EARLY_US + 100, -int(1e9), 1), (EARLY_US + 100, None, 0), (None, -int(1e9), 0)],
)
def test_an_acknowledgement_is_early_if_it_came_well_before_the_commit(
    late_us: int | None, epoch_us: int | None, early: int, tmp_path: Path
) -> None:
    """Nothing is said of commits without a moment, nor if the machine's clock was set."""
    rows = [*published(1), got(300, 1), settled(500, 1)]
    at_us = None if late_us is None else 500 + late_us
    numbers = committed(tmp_path, rows, epoch_us=epoch_us, job_0=wrote(line(1, at_us))).by_process()["job-0"]
    assert (numbers["early"], numbers["uncommitted"]) == (early, 0)
    assert numbers["early_s_max"] == (0.002 if early else 0.0)


def test_an_acknowledgement_in_a_transaction_counts_once_it_is_committed(tmp_path: Path) -> None:
    """After a rollback the delivery waits again, and a commit later does not settle it."""
    rows = [*published(1), *published(2), got(300, 1), got(310, 2)]
    rows += [settled(400, 1)._replace(mode=Mode.TRANSACTIONS), Row(410, 1, 0, Kind.ROLLED_BACK)]
    rows += [settled(420, 2)._replace(mode=Mode.TRANSACTIONS), Row(9_000, 1, 0, Kind.COMMITTED)]
    work = committed(tmp_path, rows, job_0=wrote(line(2, 8_000)))
    assert not list(work.events())
    numbers = work.by_process()["job-0"]
    assert (numbers["acknowledged"], numbers["early"]) == (1, 0)


def test_programs_that_commit_nothing_are_not_judged(tmp_path: Path) -> None:
    """One writes what it works on, and one lines that say nothing."""
    rows = [*published(1), got(300, 1), settled(400, 1), *published(2), got(300, 2, by=3), settled(400, 2, by=3)]
    unread = WorkOfProcess(unread=2, first_unread="line 1")
    work = committed(tmp_path, rows, job_0=wrote(line(1, event=WORKED_ON)), other_0=unread)
    assert not list(work.events())
    numbers = work.by_process()
    assert {name: of["acknowledged"] for name, of in numbers.items()} == {"job-0": 0, "job-1": 0, "other-0": 0}
    assert (numbers["other-0"]["unread"], numbers["other-0"]["first_unread"]) == (2, "line 1")
