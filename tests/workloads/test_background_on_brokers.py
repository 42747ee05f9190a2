"""A load over channels of its own for each queue, beside idle connections and churn, on real brokers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rabbitmq_resilience.history.event_log import read_events
from rabbitmq_resilience.history.events import ChurnEvent, IdleEvent
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.queues import depths
from tests.workloads.running import publishes, running, worker_events

pytestmark = pytest.mark.brokers

KINDS = ("connections", "channels", "queues", "bindings")


def churned(folder: Path) -> Counter[str]:
    path = folder / "churn-0.jsonl"
    events = [event for event in read_events(path) if isinstance(event, ChurnEvent)] if path.exists() else []
    return sum((Counter(event.done) for event in events), Counter())


def test_all_of_it_at_once(cluster: LocalCluster, tmp_path: Path) -> None:
    with running(
        cluster,
        tmp_path,
        queues=6,
        publishers=2,
        consumers=2,
        rate_per_s=100,
        spread={"channel": "per_queue", "run": 4},
        idle_connections=60,
        churn={f"{kind}_per_s": 20 for kind in KINDS},
    ) as load:
        assert load.idle_missing() == 0
        wait_until(
            lambda: churned(tmp_path),
            until=lambda done: all(done[kind] >= 5 for kind in KINDS) and load.progress().confirmed >= 100,
            timeout_s=120,
            what="churn of each kind, and confirms",
        )
        load.check()
        assert load.stop_publishers(timeout_s=60)
        assert load.drain(lambda: depths(cluster.api("a1"), load.load.vhost), idle_s=6, timeout_s=120).unconsumed == 0
        assert load.idle_missing() == 0
    idle = [event for event in read_events(tmp_path / "idle-0.jsonl") if isinstance(event, IdleEvent)]
    there_us = next(event.t_us for event in idle if event.connected == 60)
    connected_us = min(event.t_us for event in worker_events(tmp_path) if event.event == "connected")
    assert there_us < connected_us, "who does nothing comes before who keeps brokers busy"
    rows = publishes(tmp_path)
    assert {Outcome(row["outcome"]) for row in rows} == {Outcome.CONFIRMED}
    for publisher in (0, 1):
        mine = sorted((row["sequence"], row["route"]) for row in rows if row["publisher"] == publisher)
        turns = [range(publisher, 6, 2)[sequence // 4 % 3] for sequence, _ in mine]
        assert [route for _, route in mine] == turns
