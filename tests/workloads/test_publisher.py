"""A publisher's decisions, with a session and a connection that only note what is asked of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pika import spec

from reports.history import PUBLISHES, Outcome, StreamReader
from tests.workloads.test_settlement import load
from workloads import publisher as module
from workloads.counters import Count
from workloads.load import publishes_path
from workloads.message import Encoder
from workloads.publisher import Publisher


@dataclass
class Notes:
    """Stands in for a session."""

    counts: Counter[Count] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    finished: bool = False

    def counted(self, count: Count) -> int:
        return self.counts[count]

    def count(self, count: Count, value: int) -> None:
        self.counts[count] = value

    def add(self, count: Count, value: int) -> None:
        self.counts[count] += value

    def fail(self, reason: str) -> None:
        self.failures.append(reason)

    def finish(self) -> None:
        self.finished = True

    def ready(self) -> None: ...

    def record(self, event: str, *, detail: str = "") -> None:  # noqa: ARG002 - one form for all
        self.events.append(event)


class Wire:
    """Stands in for a connection."""

    is_open = True
    unsent_bytes = 0
    on_confirm: Callable[[int, bool], None]
    on_nack: Callable[[object], None]

    def __init__(self, notes: Notes) -> None:
        self.params = SimpleNamespace(frame_max=131_072)
        self.written = 0
        self._notes = notes

    def write_messages(self, messages: list[bytes]) -> None:
        self.written += len(messages)
        assert self._notes.counts[Count.SENT] >= self.written, "what is written was counted before"


@dataclass
class Rig:
    folder: Path
    publisher: Any
    notes: Notes
    wire: Wire
    asked_for_confirms: bool = False

    def rows(self) -> dict[int, Outcome]:
        """The outcomes on record after the connection was lost for good."""
        self.publisher.lost()
        batches = StreamReader(publishes_path(self.folder, 0, 0), PUBLISHES).batches()
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert len({row["sequence"] for row in rows}) == len(rows)
        return {row["sequence"]: Outcome(row["outcome"]) for row in rows}

    def connect(self) -> None:
        channel = SimpleNamespace(channel_number=1, add_on_close_callback=id, add_on_return_callback=id)

        def confirm_delivery(on_nack: Any, callback: Callable[[object], None]) -> None:
            self.asked_for_confirms, self.wire.on_nack = True, on_nack
            callback(None)

        channel.confirm_delivery = confirm_delivery
        self.publisher._on_channel(self.wire, channel, 0)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def rig(**fields: Any) -> Rig:
        notes = Notes()
        monkeypatch.setattr(module, "Session", lambda *_, **__: notes)
        publisher = Publisher(replace(load(), in_flight=5, **fields), tmp_path, index=0, life=0)
        made.append(Rig(tmp_path, publisher, notes, Wire(notes)))
        made[0].connect()
        return made[0]

    yield rig
    made[0].publisher.close()


@pytest.fixture
def rig(make: Callable[..., Rig]) -> Rig:
    return make()


def nack(tag: int, *, multiple: bool = False) -> object:
    return SimpleNamespace(method=spec.Basic.Nack(tag, multiple))


@pytest.mark.parametrize("confirms", ["none", "ignored"])
def test_a_publisher_that_heeds_no_confirm_counts_each_write_as_a_promise(
    make: Callable[..., Rig], confirms: str
) -> None:
    rig = make(confirms=confirms)
    assert rig.asked_for_confirms is (confirms == "ignored")
    rig.publisher.tick()
    assert rig.wire.written == 10
    if confirms == "ignored":
        rig.wire.on_confirm(1, True)
        rig.wire.on_nack(nack(2, multiple=True))
    assert rig.rows() == dict.fromkeys(range(10), Outcome.CONFIRMED)


def test_the_limit_in_flight_is_kept(rig: Rig) -> None:
    assert rig.wire.written == 5
    rig.publisher.tick()
    assert rig.wire.written == 5
    rig.publisher._on_confirm(3, True)
    rig.publisher.tick()
    assert rig.wire.written == 8


def test_confirms_nacks_and_what_stays_open(rig: Rig) -> None:
    rig.publisher._on_confirm(2, False)
    rig.publisher._on_nack(nack(4))
    rig.publisher._on_confirm(3, True)
    assert rig.rows() == {
        0: Outcome.CONFIRMED,
        1: Outcome.CONFIRMED,
        2: Outcome.CONFIRMED,
        3: Outcome.NACKED,
        4: Outcome.UNKNOWN,
    }


def test_a_returned_message_is_not_confirmed(rig: Rig) -> None:
    rig.publisher._on_return(None, None, None, Encoder(1, 0, b"payload").encode(1))
    rig.publisher._on_confirm(3, True)
    rows = rig.rows()
    assert [rows[sequence] for sequence in range(3)] == [Outcome.CONFIRMED, Outcome.RETURNED, Outcome.CONFIRMED]


def test_tags_begin_anew_on_the_next_connection(rig: Rig) -> None:
    rig.publisher._on_confirm(1, False)
    rig.publisher.lost()
    rig.connect()
    rig.publisher._on_confirm(1, False)
    rows = rig.rows()
    assert rows[0] is Outcome.CONFIRMED
    assert {rows[sequence] for sequence in range(1, 5)} == {Outcome.UNKNOWN}
    assert rows[5] is Outcome.CONFIRMED


def test_a_confirm_that_comes_twice_counts_once(rig: Rig) -> None:
    rig.publisher._on_confirm(1, False)
    rig.publisher._on_confirm(1, False)
    rig.publisher._on_confirm(1, True)
    assert rig.notes.counts[Count.CONFIRMED] == 1


def test_nothing_is_sent_while_blocked(rig: Rig) -> None:
    rig.publisher._block(True)
    rig.publisher._on_confirm(5, True)
    rig.publisher.tick()
    assert rig.wire.written == 5
    rig.publisher._block(False)
    rig.publisher.tick()
    assert rig.wire.written == 10


def test_patience_with_confirms_ends(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    sent_us = next(iter(rig.publisher._pending.values()))
    monkeypatch.setattr(module, "now_us", lambda: sent_us + 29_000_000)
    rig.publisher._check_patience()
    assert rig.notes.failures == []
    monkeypatch.setattr(module, "now_us", lambda: sent_us + 31_000_000)
    rig.publisher._check_patience()
    assert rig.notes.failures == ["no confirm for 31.0 s"]


def test_patience_begins_anew_when_the_broker_lets_go(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before the broker blocked may be unread until then."""
    sent_us = next(iter(rig.publisher._pending.values()))

    def look(after_s: float) -> list[str]:
        monkeypatch.setattr(module, "now_us", lambda: sent_us + round(after_s * 1e6))
        rig.publisher._check_patience()
        return rig.notes.failures

    rig.publisher._block(True)
    assert look(100) == []
    rig.publisher._block(False)
    assert look(129) == []
    assert look(131) == ["no confirm for 31.0 s"]


def test_a_blocked_publisher_that_loses_its_connection_is_blocked_no_more(rig: Rig) -> None:
    rig.publisher._block(True)
    assert (rig.notes.counts[Count.BLOCKED], rig.notes.events) == (1, ["blocked"])
    rig.publisher.lost()
    assert (rig.notes.counts[Count.BLOCKED], rig.notes.events) == (0, ["blocked", "unblocked"])
    rig.publisher.lost()
    assert rig.notes.events == ["blocked", "unblocked"]


def test_the_rate_varies_from_the_moment_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are of all publishers together; this is one of two."""
    clock_s, notes = [1000.0], Notes()
    monkeypatch.setattr(module, "Session", lambda *_, **__: notes)
    monkeypatch.setattr(module, "now_us", lambda: round(clock_s[0] * 1e6))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    steps = ({"rate_per_s": 600, "for_s": 2}, {"rate_per_s": 0, "for_s": 3}, {"rate_per_s": None, "for_s": 1})
    fields: dict[str, Any] = {"rate_per_s": 200, "variable_rate": steps, "in_flight": 10_000}
    rig = Rig(tmp_path, Publisher(replace(load(publishers=2), **fields), tmp_path, index=1, life=0), notes, Wire(notes))
    rig.connect()

    def sent_in(ms: int) -> int:
        before = rig.wire.written
        for _ in range(ms // 10):
            clock_s[0] += 0.01
            rig.publisher.tick()
        return rig.wire.written - before

    assert abs(sent_in(2000) - 200) <= 2
    rig.publisher.vary(round(clock_s[0] * 1e6) - 1_000_000)
    assert abs(sent_in(990) - 297) <= 5
    sent_in(20)
    assert sent_in(2980) == 0
    sent_in(20)
    assert len(rig.publisher._pending) == 10_000
    sent_in(1000)
    rig.publisher._on_confirm(20_000, True)
    assert abs(sent_in(2000) - 200) <= 2
    rig.publisher.close()


def test_it_stops_once_all_is_confirmed(rig: Rig) -> None:
    rig.publisher.stop()
    assert not rig.notes.finished
    rig.publisher._on_confirm(5, True)
    rig.publisher.tick()
    assert rig.notes.finished
    assert rig.wire.written == 5


steps = st.lists(
    st.one_of(
        st.tuples(st.just("confirm"), st.integers(1, 12), st.booleans()),
        st.tuples(st.just("nack"), st.integers(1, 12), st.booleans()),
        st.tuples(st.sampled_from(["tick", "lose"]), st.just(0), st.just(False)),
    ),
    max_size=40,
)


@settings(max_examples=50)
@given(steps)
def test_each_message_has_one_outcome_whatever_the_broker_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, bool]]
) -> None:
    folder, notes = tmp_path_factory.mktemp("history"), Notes()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(module, "Session", lambda *_, **__: notes)
        rig = Rig(folder, Publisher(replace(load(), in_flight=5), folder, index=0, life=0), notes, Wire(notes))
    rig.connect()
    for step, tag, multiple in steps:
        if step == "confirm":
            rig.publisher._on_confirm(tag, multiple)
        elif step == "nack":
            rig.publisher._on_nack(nack(tag, multiple=multiple))
        elif step == "tick":
            rig.publisher.tick()
        else:
            rig.publisher.lost()
            rig.connect()
    assert set(rig.rows()) == set(range(rig.wire.written))
    rig.publisher.close()
