"""When a consumer records and acknowledges, with a session and a channel that only note what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.history.history import DELIVERIES, StreamReader
from rabbitmq_resilience.workload import consumer as module
from rabbitmq_resilience.workload.counters import Count
from rabbitmq_resilience.workload.load import Load, deliveries_path
from rabbitmq_resilience.workload.message import Encoder
from tests.workloads import hosted
from tests.workloads.rig import Notes
from tests.workloads.test_settlement import load


@dataclass
class Wire:
    """Stands in for a connection that has this channel."""

    its: Any
    on_delivery: Any = None
    on_data: Any = None

    def channel(self, *, on_open_callback: Callable[[Any], None]) -> None:
        on_open_callback(self.its)


@dataclass
class Acks:
    """Stands in for a channel."""

    recorded: Any
    tags: list[int] = field(default_factory=list)
    is_open: bool = True

    def add_on_close_callback(self, _: object) -> None: ...

    def add_on_cancel_callback(self, _: object) -> None: ...

    def basic_qos(self, *, prefetch_count: int) -> None: ...

    def basic_consume(self, *_: object, **__: object) -> None: ...

    def basic_ack(self, tag: int, *, multiple: bool) -> None:
        assert multiple
        assert self.recorded() >= tag, "what is acknowledged was recorded before"
        self.tags.append(tag)


@dataclass
class Rig:
    folder: Path
    consumer: Any
    notes: Notes
    wire: Wire
    later: list[Callable[[], None]]
    clock_us: int = 0
    delivered: int = 0

    @property
    def channel(self) -> Any:
        return self.wire.its

    def connect(self, channel: Acks) -> None:
        self.wire = Wire(channel)
        self.consumer.opened(self.wire, 0)

    def settle(self) -> None:
        """What the process does once it has served what arrived."""
        while self.later:
            self.later.pop()()

    def deliver(self, count: int, *, first_tag: int = 1) -> None:
        """In one chunk of data."""
        encoder = Encoder(1, 0, b"payload")
        for tag in range(first_tag, first_tag + count):
            self.wire.on_delivery(b"q1", tag, False, encoder.encode(self.delivered))
            self.delivered += 1
        self.wire.on_data()
        self.settle()

    def wait(self, ms: float) -> None:
        """Ticks of 10 ms."""
        for _ in range(round(ms / 10)):
            self.clock_us += 10_000
            self.consumer.tick()
            self.settle()

    def rows(self) -> list[int]:
        batches = StreamReader(deliveries_path(self.folder, "consumer-0", 0), DELIVERIES).batches()
        return [row["sequence"] for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Rig] = []
    notes = Notes()
    monkeypatch.setattr(module, "now_us", lambda: made[0].clock_us if made else 0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made[0].clock_us / 1e6))

    def rig(**fields: Any) -> Rig:
        few: Load = load(prefetch=1000, **fields)
        later: list[Callable[[], None]] = []
        consumer = hosted.consumer(few, tmp_path, notes, later=later.append)
        channel = Acks(lambda: notes.counts[Count.RECORDED])
        made.append(Rig(tmp_path, consumer, notes, Wire(channel), later))
        made[0].connect(channel)
        return made[0]

    yield rig
    hosted.close(made[0].consumer)


def test_without_processing_a_full_batch_is_acknowledged_at_once_and_the_last_few_soon(make: Any) -> None:
    rig = make(ack_every=10)
    rig.deliver(25)
    assert rig.channel.tags == [25]
    rig.deliver(3, first_tag=26)
    assert rig.channel.tags == [25]
    rig.wait(100)
    assert rig.channel.tags == [25, 28]


def test_processing_delays_acknowledgements_and_not_the_record(make: Any) -> None:
    rig = make(ack_every=10, processing_ms=20)
    rig.deliver(25)
    rig.wait(110)
    assert (rig.channel.tags, rig.notes.counts[Count.RECORDED]) == ([], 25)
    rig.wait(90)
    assert rig.channel.tags == [10]
    rig.wait(400)
    assert rig.channel.tags == [10, 20, 25]
    assert rig.rows() == list(range(25))


def test_processing_is_no_faster_after_idle_time(make: Any) -> None:
    rig = make(ack_every=1, processing_ms=50)
    rig.wait(1000)
    rig.deliver(2)
    rig.wait(40)
    assert rig.channel.tags == []
    rig.wait(60)
    assert rig.channel.tags == [1, 2]


def test_slow_only_for_some_time(make: Any) -> None:
    rig = make(ack_every=1, variable_processing=({"processing_ms": 100.0, "for_s": 1},))
    rig.deliver(5)
    assert rig.channel.tags == [5]
    rig.consumer.vary(0)
    rig.deliver(20, first_tag=6)
    rig.wait(520)
    assert rig.channel.tags[-1] == 10
    rig.wait(490)
    assert rig.channel.tags[-1] == 25


def test_a_new_channel_counts_from_one_again(make: Any) -> None:
    rig = make(ack_every=1, processing_ms=10)
    rig.deliver(50)
    rig.wait(100)
    assert rig.channel.tags[-1] == 10
    rig.consumer.lost()
    again = Acks(rig.channel.recorded)
    rig.connect(again)
    rig.deliver(5)
    rig.wait(20)
    assert again.tags == [1, 2]
    rig.consumer.lost()
    assert rig.rows() == list(range(55))


def test_a_consumer_that_stops_acknowledges_all_it_has_recorded(make: Any) -> None:
    rig = make(ack_every=10, processing_ms=60_000)
    rig.deliver(7)
    rig.consumer.stop()
    assert (rig.channel.tags, rig.notes.finished) == ([7], [False])
    assert rig.rows() == list(range(7))


@dataclass
class EarlyAcks(Acks):
    """Stands in for a channel that need not wait for the record."""

    def basic_ack(self, tag: int, *, multiple: bool) -> None:
        assert multiple
        self.tags.append(tag)


def test_early_acknowledgements_come_before_the_work_and_the_record_after_it(make: Any) -> None:
    rig = make(acks="early", ack_every=10, processing_ms=20)
    rig.connect(EarlyAcks(rig.channel.recorded))
    rig.deliver(25)
    assert (rig.channel.tags, rig.notes.counts[Count.RECORDED]) == ([25], 0)
    rig.wait(210)
    assert (rig.channel.tags, rig.rows()) == ([25], list(range(10)))
    rig.deliver(2, first_tag=26)
    assert rig.channel.tags == [25, 27]
    rig.consumer.stop()
    assert rig.rows() == list(range(27))


def test_a_consumer_that_acknowledges_early_works_on_after_it_lost_its_connection(make: Any) -> None:
    rig = make(acks="early", ack_every=1, processing_ms=20)
    rig.connect(EarlyAcks(rig.channel.recorded))
    rig.deliver(10)
    rig.wait(60)
    rig.consumer.lost()
    assert rig.rows() == list(range(10))
    again = EarlyAcks(rig.channel.recorded)
    rig.connect(again)
    rig.deliver(3)
    rig.wait(50)
    assert (again.tags, rig.rows()) == ([3], list(range(12)))


def test_automatic_acknowledgement_acknowledges_nothing(make: Any) -> None:
    rig = make(acks="automatic")
    rig.deliver(10)
    rig.wait(100)
    assert (rig.channel.tags, rig.notes.counts[Count.RECORDED]) == ([], 10)
