"""In which order messages of an application came, and where brokers promise one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.tap.wire_history import Kind, Mode, Row
from rabbitmq_resilience.workload.delivery_order import DeliveryOrder
from rabbitmq_resilience.workload.wire_messages import WireMessages
from tests.tap.records import Wire, write
from tests.workloads.test_application_history import QUEUES, confirm, deliver, publish


def consumes(t_us: int, connection: int = 2, queue: str = "q") -> Wire:
    return t_us, connection, "consuming", {"queue": queue, "session": 0, "consumer": "c", "automatic": False}


def order(folder: Path, rows: Sequence[Row], *wire: Wire, skipped: Sequence[str] = ()) -> DeliveryOrder:
    """Convert rows of connections 0 and 1 of ``web-0``, and 2 and 3 of ``job-0``."""
    write(folder, rows, wire, processes=("web-0", "web-0", "job-0", "job-0"))
    messages = WireMessages(folder)
    return DeliveryOrder(messages, messages.complete(asked_us=1_000), QUEUES, skipped)


def both(**second: Any) -> list[Row]:
    """Return two messages, the second with these fields, and their confirms."""
    confirms = [confirm(110, tag=2, multiple=True), confirm(110, tag=2, connection=1)]
    return [publish(100, 1), publish(101, 2, **{"tag": 2, **second}), *confirms]


BACKWARDS = [deliver(200, 2), deliver(201, 1)]


def test_a_message_that_was_overtaken_is_found(tmp_path: Path) -> None:
    found = order(tmp_path, [*both(), *BACKWARDS], consumes(50))
    fields = {"t_us": 201, "process": "job-0", "queue": "q", "publisher": "web-0", "sent_us": 100, "later_us": 101}
    assert list(found.events()) == [fields]
    assert found.by_queue == {"q": {"judged": 2, "last_us": 201}}


def test_messages_that_are_fetched_are_judged_too(tmp_path: Path) -> None:
    fetched = [row._replace(kind=Kind.GOT) for row in BACKWARDS]
    assert len(list(order(tmp_path, [*both(), *fetched]).events())) == 1


def test_messages_in_order_are_judged(tmp_path: Path) -> None:
    found = order(tmp_path, [*both(), deliver(200, 1), deliver(201, 2)], consumes(50))
    assert not list(found.events())
    assert found.by_queue["q"]["judged"] == 2


#: By what it is, the rows of two messages whose order is not promised, or not known.
NO_ORDER: Mapping[str, Sequence[Row]] = {
    "on another channel": [*both(connection=1), *BACKWARDS],
    "with another priority": [*both(priority=5), *BACKWARDS],
    "through another exchange": [*both(place="all"), *BACKWARDS],
    "redelivered": [*both(), deliver(200, 2), deliver(201, 1, flag=True)],
    "again": [*both(), deliver(190, 1), *BACKWARDS],
    "from two queues": [*both(place="all"), publish(99, 3, place="all"), deliver(200, 2), deliver(201, 3, place="p")],
    "a dead letter": [*both(routing_key="p"), *BACKWARDS],
    "refused": [both()[0], both()[1], Row(110, 0, 0, Kind.NACKED, tag=1), confirm(111, tag=2), *BACKWARDS],
    "in doubt": [both()[0], both()[1], confirm(111, tag=2), *BACKWARDS],
    "equal": [*both(), publish(102, 1, tag=3), *BACKWARDS],
}


@pytest.mark.parametrize("what", NO_ORDER)
def test_what_has_no_order_is_not_said_to_be_overtaken(what: str, tmp_path: Path) -> None:
    assert not list(order(tmp_path, NO_ORDER[what], consumes(50), consumes(50, queue="p")).events())


def test_the_order_holds_without_confirms(tmp_path: Path) -> None:
    rows = [publish(t_us, n, tag=0, mode=Mode.PLAIN) for t_us, n in ((100, 1), (101, 2))]
    assert len(list(order(tmp_path, [*rows, *BACKWARDS], consumes(50)).events())) == 1


CLOSED: Wire = (120, 3, "closed", {})


@pytest.mark.parametrize(
    ("wire", "judged"),
    [
        ([consumes(50), consumes(150, 3)], 0),
        ([consumes(50), consumes(60, 3), CLOSED], 0),
        ([consumes(130), consumes(60, 3), CLOSED], 2),
        ([consumes(50), consumes(55)], 0),
        ([consumes(50), consumes(55, queue="p"), consumes(60, 3, queue="p")], 2),
    ],
)
def test_a_queue_is_judged_where_it_has_one_consumer_at_a_time(
    wire: Sequence[Wire], judged: int, tmp_path: Path
) -> None:
    """The tap sees a consumer until its channel ends, also if its link was cut."""
    found = order(tmp_path, [*both(), *BACKWARDS], *wire)
    assert len(list(found.events())) == judged // 2
    assert (found.by_queue["q"]["judged"], found.by_queue["q"]["shared"]) == (judged, 2 - judged)


def test_queues_that_are_not_judged_are_left_out(tmp_path: Path) -> None:
    found = order(tmp_path, [*both(), *BACKWARDS], consumes(50), skipped=["q"])
    assert not found.by_queue
    assert not list(found.events())
