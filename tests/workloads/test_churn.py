"""Churn, with brokers that answer when they are told to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from rabbitmq_resilience.history.event_log import EventLog, read_events
from rabbitmq_resilience.history.events import ChurnEvent
from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.workload import churn as module
from rabbitmq_resilience.workload.churn import UNDER_WAY_MAX, ChurnClient
from rabbitmq_resilience.workload.workload_model import Workload
from tests.messages import Messages
from tests.workloads.refusals import LINKS
from tests.workloads.test_settlement import load

Call = Callable[[], object]


class Broker:
    """Everything that is asked of it waits until ``answer``; what is lost is not answered any more."""

    def __init__(self) -> None:
        self.asked: list[Call] = []
        self.later: list[Call] = []
        self.lose: Call = lambda: None
        self.names: list[str] = []

    def answer(self) -> None:
        while self.asked:
            self.asked.pop(0)()

    def pass_time(self) -> None:
        due, self.later = self.later, []
        for call in due:
            call()

    def connect(self, parameters: Any, **callbacks: Any) -> Any:
        name = parameters.client_properties["connection_name"]
        made = SimpleNamespace(is_open=True, channel=self._channel)

        def close(*_: object) -> None:
            self.asked.append(lambda: callbacks["on_close_callback"](made, Exception("closed")))

        made.close = close
        made.abort = lambda reason: callbacks["on_close_callback"](made, Exception(reason))
        if name == "churn-0":
            self.lose = lambda: self._forget(made)
        self.names.append(name)
        self.asked.append(lambda: callbacks["on_open_callback"](made))
        return made

    def _forget(self, connection: Any) -> None:
        self.asked.clear()
        connection.abort("lost")

    def _channel(self, *, on_open_callback: Callable[[Any], object]) -> None:
        closing: list[Callable[..., object]] = []
        made = SimpleNamespace(add_on_close_callback=closing.append)
        made.close = lambda: self.asked.append(lambda: [call(made, "closed") for call in closing])
        for method in ("queue_declare", "queue_delete", "queue_bind", "queue_unbind"):
            setattr(made, method, lambda *_, callback, **__: self.asked.append(lambda: callback(None)))
        self.asked.append(lambda: on_open_callback(made))


class Rig:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, events: EventLog, **per_s: float) -> None:
        self.broker, self.clock_s, self.path = Broker(), 1000.0, folder / "churn-0.jsonl"
        monkeypatch.setattr(module, "Connection", self.broker.connect)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.clock_s))
        monkeypatch.setattr(module, "now_us", lambda: round(self.clock_s * 1e6))
        stated = load(churn=per_s)
        loop = SimpleNamespace(call_later=lambda _, call: self.broker.later.append(call))
        host: Any = SimpleNamespace(load=stated, access=Access(), loop=loop, events=events, finished=lambda: None)
        self.churn = ChurnClient(host)
        self.churn.begin()

    def told(self, *, after_s: float) -> tuple[dict[str, int], dict[str, int]]:
        """What was done and what failed in all, when that time is over."""
        self.clock_s += after_s
        self.churn.tick()
        self.broker.answer()
        self.clock_s += 1
        self.churn.stop()
        self.churn.tick()
        done: dict[str, int] = {}
        failed: dict[str, int] = {}
        for event in read_events(self.path):
            assert isinstance(event, ChurnEvent)
            for total, part in ((done, event.done), (failed, event.failed)):
                total |= {kind: total.get(kind, 0) + count for kind, count in part.items()}
        return done, failed


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rig]]:
    with EventLog(tmp_path / "churn-0.jsonl") as events:
        yield lambda **per_s: Rig(tmp_path, monkeypatch, events, **per_s)


def test_each_is_opened_and_closed_at_its_rate(make: Callable[..., Rig]) -> None:
    rig = make(connections_per_s=8, channels_per_s=4, queues_per_s=16, bindings_per_s=20)
    rig.broker.answer()
    done, failed = rig.told(after_s=0.25)
    assert (done, failed) == ({"connections": 2, "channels": 1, "queues": 4, "bindings": 5}, {})


def test_only_what_is_asked_for(make: Callable[..., Rig]) -> None:
    rig = make(connections_per_s=8)
    assert rig.broker.names == [], "nothing needs a connection that is held"
    assert rig.told(after_s=0.25) == ({"connections": 2}, {})


def test_no_more_are_under_way_than_that(make: Callable[..., Rig]) -> None:
    rig = make(connections_per_s=1000)
    for _ in range(5):
        rig.clock_s += 0.25
        rig.churn.tick()
    assert len(rig.broker.names) == UNDER_WAY_MAX
    assert rig.told(after_s=0)[0] == {"connections": UNDER_WAY_MAX}


def test_what_is_under_way_fails_with_its_connection(make: Callable[..., Rig]) -> None:
    rig = make(queues_per_s=8)
    rig.broker.answer()
    rig.clock_s += 0.25
    rig.churn.tick()
    rig.broker.lose()
    rig.clock_s += 0.25
    rig.churn.tick()
    assert not rig.broker.asked, "nothing is begun while nothing is held"
    rig.broker.pass_time()
    rig.broker.answer()
    done, failed = rig.told(after_s=0.25)
    assert failed == {"queues": 2}
    assert done == {"queues": 2}, "of what was due meanwhile, a quarter of a second is made up for"


def test_churn_of_nothing_is_refused(message: Messages) -> None:
    with message.of(ValidationError, hide=LINKS):
        Workload.model_validate({"churn": {}})
