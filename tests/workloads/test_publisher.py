"""A publisher's decisions, with a session and a connection that only note what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pika import spec

from rabbitmq_resilience.history.history import PUBLISHES, Outcome, StreamReader
from rabbitmq_resilience.workload import publisher as module
from rabbitmq_resilience.workload import publishes
from rabbitmq_resilience.workload.client_host import RARE_TICK_S, TICK_S
from rabbitmq_resilience.workload.counters import Count
from rabbitmq_resilience.workload.load import publishes_path, under_way_path
from rabbitmq_resilience.workload.message import Encoder
from rabbitmq_resilience.workload.under_way import left_under_way
from tests.messages import Messages
from tests.workloads import hosted
from tests.workloads.rig import Notes, Rig, Wire
from tests.workloads.test_settlement import load

VARYING = {"variable_rate": ({"rate_per_s": 5, "for_s": 1},)}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def rig(**fields: Any) -> Rig:
        notes = Notes()
        publisher = hosted.publisher(load(**{"in_flight": 5, **fields}), tmp_path, notes)
        made.append(Rig(tmp_path, publisher, notes, Wire(notes)))
        made[0].connect()
        return made[0]

    yield rig
    made[0].close()


@pytest.fixture
def rig(make: Callable[..., Rig]) -> Rig:
    return make()


def table(rig: Rig) -> list[dict[str, Any]]:
    rig.publisher.history.flush()
    batches = StreamReader(publishes_path(rig.folder, "publisher-0", 0), PUBLISHES).batches()
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: int(row["sequence"]))


def test_routes_are_written_down_and_go_round_whatever_was_sent_before(make: Callable[..., Rig]) -> None:
    rig = make(queues=3, in_flight=4)
    for tag in (2, 3, 7):
        rig.confirm(tag, True)
        rig.publisher.tick()
    rig.confirm(rig.wire.written, True)
    rows = table(rig)
    assert [row["sequence"] for row in rows] == list(range(11))
    assert [row["route"] for row in rows] == [n % 3 for n in range(11)]


def test_without_a_rate_a_message_is_due_when_it_is_sent(rig: Rig) -> None:
    rig.confirm(5, True)
    rows = table(rig)
    assert [row["due_us"] for row in rows] == [row["sent_us"] for row in rows]


def test_what_is_under_way_is_written_down_before_it_is_counted_and_counted_before_it_is_sent(rig: Rig) -> None:
    path = under_way_path(rig.folder, "publisher-0", 0)

    def numbers() -> set[int]:
        return {int(place["number"]) for place in left_under_way(path)}

    assert numbers() == {1, 2, 3, 4, 5}
    counted = rig.notes.count

    def count(what: Count, value: int) -> None:
        if what is Count.SENT:
            assert numbers() >= set(range(6, value + 1)), "what is counted was written down before"
        counted(what, value)

    rig.notes.count = count  # type: ignore[method-assign, assignment]
    rig.confirm(5, True)
    rig.publisher.tick()
    assert rig.notes.counts[Count.SENT] == rig.wire.written == 10
    assert rig.notes.counts[Count.RECORDED] == 5, "the rows of the first five are written"
    rig.close()
    assert not path.exists(), "nothing is under way any more"


def test_a_place_is_taken_until_its_row_is_written(make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    """However long one message waits for its confirm while others come and go."""
    monkeypatch.setattr(publishes, "FLUSH_ROWS", 20)
    rig = make(in_flight=7)
    for tag in range(2, 3000):
        rig.confirm(tag, False)
        rig.publisher.tick()
    assert rig.rows() == {0: Outcome.UNKNOWN} | {n: Outcome.CONFIRMED for n in range(1, 2999)} | {
        n: Outcome.UNKNOWN for n in range(2999, rig.wire.written)
    }


def nack(tag: int, *, multiple: bool = False, channel: int = 1) -> object:
    return SimpleNamespace(method=spec.Basic.Nack(tag, multiple), channel_number=channel)


@pytest.mark.parametrize("confirms", ["none", "ignored"])
def test_a_publisher_that_heeds_no_confirm_counts_each_write_as_a_promise(
    make: Callable[..., Rig], confirms: str
) -> None:
    rig = make(confirms=confirms)
    assert rig.wire.asked_for_confirms is (confirms == "ignored")
    rig.publisher.tick()
    assert rig.wire.written == 10
    if confirms == "ignored":
        rig.wire.on_confirm(1, 1, True)
        rig.wire.on_nack(nack(2, multiple=True))
    assert rig.rows() == dict.fromkeys(range(10), Outcome.CONFIRMED)
    rig.publisher.stop()
    assert rig.notes.finished == [True]


def test_the_limit_in_flight_is_kept(rig: Rig) -> None:
    assert rig.wire.written == 5
    rig.publisher.tick()
    assert rig.wire.written == 5
    rig.confirm(3, True)
    rig.publisher.tick()
    assert rig.wire.written == 8


def test_confirms_nacks_and_what_stays_open(rig: Rig) -> None:
    rig.confirm(2, False)
    rig.wire.on_nack(nack(4))
    rig.confirm(3, True)
    assert rig.rows() == {
        0: Outcome.CONFIRMED,
        1: Outcome.CONFIRMED,
        2: Outcome.CONFIRMED,
        3: Outcome.NACKED,
        4: Outcome.UNKNOWN,
    }


def test_a_returned_message_is_not_confirmed(rig: Rig) -> None:
    rig.wire.on_return(None, None, None, Encoder(1, 0, b"payload").encode(1))
    rig.confirm(3, True)
    rows = rig.rows()
    assert [rows[sequence] for sequence in range(3)] == [Outcome.CONFIRMED, Outcome.RETURNED, Outcome.CONFIRMED]


def test_tags_begin_again_on_the_next_connection(rig: Rig) -> None:
    rig.confirm(1, False)
    rig.publisher.lost()
    rig.connect()
    rig.confirm(1, False)
    rows = rig.rows()
    assert rows[0] is Outcome.CONFIRMED
    assert {rows[sequence] for sequence in range(1, 5)} == {Outcome.UNKNOWN}
    assert rows[5] is Outcome.CONFIRMED


def test_a_confirm_that_comes_twice_counts_once(rig: Rig) -> None:
    rig.confirm(1, False)
    rig.confirm(1, False)
    rig.confirm(1, True)
    assert rig.notes.counts[Count.CONFIRMED] == 1


def test_nothing_is_sent_while_blocked(rig: Rig) -> None:
    rig.wire.on_blocked()
    rig.confirm(5, True)
    rig.publisher.tick()
    assert rig.wire.written == 5
    rig.wire.on_unblocked()
    assert rig.wire.written == 10


@pytest.mark.parametrize(
    ("fields", "tick_s"), [({}, RARE_TICK_S), ({"confirms": "ignored"}, TICK_S), (VARYING, TICK_S)]
)
def test_it_looks_often_only_where_nothing_says_when(
    make: Callable[..., Rig], fields: dict[str, Any], tick_s: float
) -> None:
    assert make(**fields).publisher.tick_s == tick_s


def test_patience_with_confirms_ends(rig: Rig, monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0)
    sent_us = rig.sent_us()
    monkeypatch.setattr(module, "now_us", lambda: sent_us + 29_000_000)
    rig.publisher.tick()
    assert rig.notes.failures == []
    monkeypatch.setattr(module, "now_us", lambda: sent_us + 31_000_000)
    rig.publisher.tick()
    (failure,) = rig.notes.failures
    message(failure)


def test_patience_begins_again_when_the_broker_lets_go(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    """What was written before the broker blocked may be unread until then."""
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0)
    sent_us = rig.sent_us()

    def look(after_s: float) -> list[str]:
        monkeypatch.setattr(module, "now_us", lambda: sent_us + round(after_s * 1e6))
        rig.publisher.tick()
        return rig.notes.failures

    rig.wire.on_blocked()
    assert look(100) == []
    rig.wire.on_unblocked()
    assert look(129) == []
    (failure,) = look(131)
    message(failure)


def test_a_blocked_publisher_that_loses_its_connection_is_blocked_no_more(rig: Rig) -> None:
    rig.wire.on_blocked()
    assert (rig.notes.counts[Count.BLOCKED], rig.notes.events) == (1, ["blocked"])
    rig.publisher.lost()
    assert (rig.notes.counts[Count.BLOCKED], rig.notes.events) == (0, ["blocked", "unblocked"])
    rig.publisher.lost()
    assert rig.notes.events == ["blocked", "unblocked"]


def test_it_stops_once_all_is_confirmed(rig: Rig) -> None:
    rig.publisher.stop()
    assert not rig.notes.finished
    rig.confirm(5, True)
    rig.publisher.tick()
    assert rig.notes.finished == [False], "confirms told it"
    assert rig.wire.written == 5
