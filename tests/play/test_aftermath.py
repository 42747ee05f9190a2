"""How long a run waits for recovery: idle connections have more time than brokers and clients, and no less."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.runner import aftermath
from rabbitmq_resilience.runner.aftermath import await_recovery
from tests.clock import Clock, waits_by_clock
from tests.messages import Messages

#: 60 idle connections have 3 s more.
IDLE, RECOVERY_S = 60, 1.0


def context(clock: Clock, *, idle_back_after_s: float, queue_back_after_s: float) -> Any:
    """A cluster of one node with one queue, a publisher and a consumer, all of which are well; the queue and the idle
    connections are not before so long."""
    began_s = clock.monotonic()

    def past(after_s: float) -> bool:
        return clock.monotonic() - began_s >= after_s

    class Seen:
        states: Mapping[str, str] = {"a1": "up"}
        partitions: Mapping[str, list[str]] = {}

        @property
        def queues(self) -> Mapping[str, Any]:
            return {"q1": {"leader": "a1", "online": int(past(queue_back_after_s)), "ready": 0, "unacked": 0}}

        def fresh_queues(self, *, timeout_s: float) -> Mapping[str, Any]:  # noqa: ARG002 - as an observer's
            return self.queues

    counts = iter(range(1_000_000))
    load = SimpleNamespace(
        check=lambda: None,
        confirmed_by_publisher=lambda: [next(counts)],
        received_by_consumer=lambda: [next(counts)],
        queues_of_consumer=lambda _: ["q1"],
        idle_missing=lambda: 0 if past(idle_back_after_s) else 7,
        idle_connections=IDLE,
        early_consumers=[0, 1],
    )
    api = SimpleNamespace(running_nodes=lambda: {"rabbit@a1"})
    topology = SimpleNamespace(node_names=["a1"])
    cluster = SimpleNamespace(topology=topology, broker_name=lambda node: f"rabbit@{node}", api=lambda _: api)
    return SimpleNamespace(observer=Seen(), load=load, cluster=cluster)


NEVER_S = 1e9


@pytest.mark.parametrize(
    ("idle_s", "queue_s", "lacking"), [(0, 0, False), (2, 0, False), (NEVER_S, 0, True), (0, 2, True)]
)
def test_idle_connections_have_more_time(
    monkeypatch: pytest.MonkeyPatch, idle_s: float, queue_s: float, lacking: bool, message: Messages
) -> None:
    clock = waits_by_clock(monkeypatch, aftermath)
    played = context(clock, idle_back_after_s=idle_s, queue_back_after_s=queue_s)
    places: Any = {"q1": {"type": "quorum", "members": ["a1"], "leader": "a1"}}
    lacks = await_recovery(RECOVERY_S, played, places)
    assert bool(lacks) is lacking
    message(lacks)


@pytest.mark.parametrize("takes_turns", [True, False])
def test_a_consumer_that_stands_by_leaves_nothing_lying(monkeypatch: pytest.MonkeyPatch, takes_turns: bool) -> None:
    """Two consumers of one queue, of which the first receives all."""
    played = context(waits_by_clock(monkeypatch, aftermath), idle_back_after_s=0, queue_back_after_s=0)
    received = iter(range(1_000_000))
    played.load.received_by_consumer = lambda: [next(received), 7]
    rows = {"q1": {"leader": "a1", "online": 1, "ready": 5, "unacked": 1}}
    played.observer = SimpleNamespace(states={"a1": "up"}, partitions={}, queues=rows, fresh_queues=lambda **_: rows)
    places: Any = {"q1": {"type": "quorum", "members": ["a1"], "leader": "a1"}}
    lacks = await_recovery(RECOVERY_S, played, places, takes_turns=takes_turns)
    assert ("consumer 1" in lacks) is not takes_turns


def test_a_consumer_that_waits_for_the_drain_leaves_messages_lying(monkeypatch: pytest.MonkeyPatch) -> None:
    played = context(waits_by_clock(monkeypatch, aftermath), idle_back_after_s=0, queue_back_after_s=0)
    played.load.received_by_consumer = lambda: [0]
    rows = {"q1": {"leader": "a1", "online": 1, "ready": 5, "unacked": 0}}
    played.observer = SimpleNamespace(states={"a1": "up"}, partitions={}, queues=rows, fresh_queues=lambda **_: rows)
    places: Any = {"q1": {"type": "quorum", "members": ["a1"], "leader": "a1"}}
    assert "consumer 0" in await_recovery(RECOVERY_S, played, places)
    played.load.early_consumers = []
    assert await_recovery(RECOVERY_S, played, places) == ""
