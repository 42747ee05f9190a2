"""Which messages of an application must still arrive, while they come."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from rabbitmq_resilience.history.event_log import EventLog
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.tap.wire_history import EVENTS_FILE, Row, WireWriter
from rabbitmq_resilience.workload.application_queues import ApplicationQueues
from rabbitmq_resilience.workload.awaited_messages import AwaitedMessages
from rabbitmq_resilience.workload.wire_messages import TappedPublish, WireMessages
from tests.invariants.references import application_played as played
from tests.invariants.references.application_converted import listed_queues
from tests.workloads.test_application_history import QUEUES, acknowledge, confirm, deliver, publish


def is_confirmed(publish: TappedPublish) -> bool:
    return publish.outcome is Outcome.CONFIRMED


class Growing:
    """A record of a tap that grows, and what must still arrive."""

    def __init__(self, folder: Path, queues: ApplicationQueues = QUEUES) -> None:
        self._writer = WireWriter(folder)
        self.close = self._writer.close
        with EventLog(folder / EVENTS_FILE) as log:
            for number in range(200):
                log.record("wire", t_us=1, connection=number, what="opened", fields={"process": "web-0", "node": "a1"})
        self.messages = WireMessages(folder)
        self.awaited = AwaitedMessages(self.messages, queues, is_confirmed)

    def missing(self, *rows: Row) -> int:
        """Return how many messages must still arrive after these rows."""
        for row in rows:
            self._writer.add(row)
        self._writer.flush()
        self.messages.update()
        self.awaited.update()
        return self.awaited.missing


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Callable[..., Growing]]:
    """Make records that are closed at the end of the test."""
    with ExitStack() as stack:
        yield lambda *queues: stack.enter_context(closing(Growing(tmp_path, *queues)))


def test_a_message_is_awaited_from_its_confirm_until_its_delivery(growing: Callable[..., Growing]) -> None:
    """In each queue that it goes to; another one may come before its confirm."""
    record = growing()
    assert record.missing(publish(100, 1, place="all"), publish(101, 2, tag=2)) == 0
    assert record.missing(confirm(110)) == 2
    assert record.missing(deliver(120, 1)) == 1
    assert record.missing(deliver(121, 1, place="p"), deliver(122, 2)) == 0
    assert record.missing(confirm(130, tag=2)) == 0
    assert record.awaited.owed == 3


def test_a_repeat_is_no_other_message(growing: Callable[..., Growing]) -> None:
    """Of equal ones. Whether it is a repeat may be known later, by the acknowledgement of the first."""
    record = growing()
    assert record.missing(publish(100), publish(101, tag=2), confirm(110, tag=2, multiple=True), deliver(120)) == 1
    assert record.missing(deliver(200, connection=3, flag=True)) == 1
    assert record.missing(acknowledge(210, 120)) == 0


def test_of_equal_messages_with_a_name_one_is_enough(growing: Callable[..., Growing]) -> None:
    record = growing()
    rows = [publish(100, named=True), publish(101, tag=2, named=True), confirm(110, tag=2, multiple=True)]
    assert record.missing(*rows) == 2
    assert record.missing(deliver(120)) == 0


@pytest.mark.parametrize("seed", range(8))
def test_looking_often_gives_what_one_look_at_the_end_gives(seed: int, growing: Callable[..., Growing]) -> None:
    source = random.Random(seed)  # noqa: S311 - it draws cases
    rows = list(played.generated(source).rows)
    record = growing(listed_queues())
    while rows:
        some, rows = rows[: (count := source.randint(1, 40))], rows[count:]
        record.missing(*some)
    once = AwaitedMessages(record.messages, listed_queues(), is_confirmed)
    once.update()
    assert (record.awaited.owed, record.awaited.missing) == (once.owed, once.missing)
    assert once.owed
