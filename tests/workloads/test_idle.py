"""Idle connections of one process, with brokers that only answer or do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.history.event_log import EventLog, read_events
from rabbitmq_resilience.history.events import IdleEvent
from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.workload import idle as module
from rabbitmq_resilience.workload.client_host import CONNECTING_MAX
from rabbitmq_resilience.workload.idle import IdleConnections, connected_now
from rabbitmq_resilience.workload.load import Address, WorkerClients
from tests.workloads.test_settlement import load

NODES = ("a1", "b1", "c1")


@dataclass(eq=False)
class Attempt:
    """A connection as the brokers see it; ``port`` tells which of them."""

    parameters: Any
    on_open_callback: Callable[[Any], None]
    on_open_error_callback: Callable[[Any, Exception], None]
    on_close_callback: Callable[[Any, Exception], None]
    custom_ioloop: Any
    is_open: bool = False

    def close(self) -> None:
        self.is_open = False
        self.on_close_callback(self, Exception("closed"))


@dataclass
class Brokers:
    """``answering``: the ports of those that do."""

    answering: set[int] = field(default_factory=lambda: {1, 2, 3})
    waiting: list[Attempt] = field(default_factory=list)
    open: list[Attempt] = field(default_factory=list)
    later: list[Callable[[], None]] = field(default_factory=list)
    at_once: int = 0

    def connect(self, parameters: Any, **callbacks: Any) -> Attempt:
        self.waiting.append(Attempt(parameters, **callbacks))
        of_port = sum(attempt.parameters.port == parameters.port for attempt in self.waiting)
        self.at_once = max(self.at_once, of_port)
        return self.waiting[-1]

    def answer(self) -> None:
        """All that is asked of those that answer, and what follows from it."""
        while ready := [attempt for attempt in self.waiting if attempt.parameters.port in self.answering]:
            for attempt in ready:
                self.waiting.remove(attempt)
                self.open.append(attempt)
                attempt.is_open = True
                attempt.on_open_callback(attempt)

    def pass_time(self) -> None:
        due, self.later = self.later, []
        for call in due:
            call()

    def lose(self, port: int) -> None:
        gone = [attempt for attempt in self.open if attempt.parameters.port == port]
        self.open = [attempt for attempt in self.open if attempt.parameters.port != port]
        for attempt in gone:
            attempt.close()

    def refuse(self, port: int) -> None:
        for attempt in [attempt for attempt in self.waiting if attempt.parameters.port == port]:
            self.waiting.remove(attempt)
            attempt.on_open_error_callback(attempt, Exception("refused"))


@dataclass
class Rig:
    brokers: Brokers
    client: IdleConnections
    events: Path
    finished: list[bool]
    clock_s: list[float]

    def told(self) -> list[tuple[int, int, int]]:
        """A second later."""
        self.clock_s[0] += 1
        self.client.tick()
        events = [event for event in read_events(self.events) if isinstance(event, IdleEvent)]
        return [(event.connected, event.wanted, event.lost) for event in events]


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    brokers, finished, clock_s = Brokers(), [], [100.0]
    monkeypatch.setattr(module, "Connection", brokers.connect)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    addresses = tuple(Address(node, "127.0.0.1", port) for port, node in enumerate(NODES, 1))
    stated = load(addresses=addresses, idle_connections=60)
    loop = SimpleNamespace(call_later=lambda _, call: brokers.later.append(call))
    with EventLog(tmp_path / "idle-0.jsonl") as events:
        host: Any = SimpleNamespace(
            load=stated, access=Access(), loop=loop, events=events, finished=lambda: finished.append(True)
        )
        made = Rig(brokers, IdleConnections(host, number=0), tmp_path / "idle-0.jsonl", finished, clock_s)
        made.client.begin()
        yield made


def ports(rig: Rig) -> list[int]:
    return [sum(attempt.parameters.port == port for attempt in rig.brokers.open) for port in (1, 2, 3)]


def test_they_are_spread_over_all_addresses_a_few_at_a_time(rig: Rig, tmp_path: Path) -> None:
    assert rig.told() == [(0, 60, 0)]
    rig.brokers.answer()
    assert ports(rig) == [20, 20, 20]
    assert rig.brokers.at_once == CONNECTING_MAX
    assert rig.told()[1:] == [(60, 60, 0)]
    assert connected_now(tmp_path, WorkerClients("idle", (0,))) == 60


def test_their_loss_and_their_return_are_reported_in_few_words(rig: Rig) -> None:
    rig.brokers.answer()
    rig.told()
    rig.brokers.answering = {2, 3}
    rig.brokers.lose(1)
    assert rig.told()[-1] == (40, 60, 20)
    rig.brokers.pass_time()
    rig.brokers.answer()
    assert ports(rig) == [0, 40, 20], "each goes to its next place"
    assert rig.told()[-1] == (60, 60, 0)
    assert len(rig.told()) == 3, "nothing is told while nothing changes"


def test_a_node_that_keeps_them_waiting_keeps_no_one_else(rig: Rig) -> None:
    rig.brokers.answering = {1, 3}
    rig.brokers.answer()
    assert ports(rig) == [20, 0, 20]
    for _ in range(3):
        rig.brokers.refuse(2)
        rig.brokers.pass_time()
        rig.brokers.answer()
    assert ports(rig) == [20, 0, 40]


def test_at_the_end_they_go_with_the_process_at_once_and_none_is_lost(rig: Rig) -> None:
    rig.brokers.answer()
    rig.told()
    rig.client.stop()
    assert rig.finished == [True]
    rig.client.close()
    assert rig.told()[-1] == (60, 60, 0)
    assert not rig.brokers.waiting


def test_nothing_is_known_of_a_process_that_has_reported_nothing(tmp_path: Path) -> None:
    assert connected_now(tmp_path, WorkerClients("idle", (0,))) == 0
    (tmp_path / "idle-0.jsonl").write_bytes(b'{"half')
    assert connected_now(tmp_path, WorkerClients("idle", (0,))) == 0
