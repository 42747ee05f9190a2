"""A load on a real cluster, and what its workers recorded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rabbitmq_resilience.history.event_log import read_events
from rabbitmq_resilience.history.events import WorkerEvent
from rabbitmq_resilience.history.history import DELIVERIES, PUBLISHES, Outcome, StreamReader
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.client_addresses import addresses
from rabbitmq_resilience.workload.drain import DrainResult
from rabbitmq_resilience.workload.queues import declare, depths
from rabbitmq_resilience.workload.running_workload import RunningWorkload, start
from rabbitmq_resilience.workload.workload_model import Workload

_numbers = itertools.count(1)


@contextmanager
def running(cluster: LocalCluster, folder: Path, **fields: Any) -> Iterator[RunningWorkload]:
    workload = Workload(**{"in_flight": 50, "message_bytes": 200, **fields})
    number = next(_numbers)
    vhost = f"running-{number}"
    queues = list(declare(cluster, workload, vhost=vhost))
    try:
        shared: dict[str, Any] = {"addresses": addresses(cluster), "queues": queues, "vhost": vhost}
        with start(workload, run=number, seed=1, folder=folder, **shared) as load:
            load.await_connected(timeout_s=60)
            load.publish()
            yield load
        load.check()
    finally:
        cluster.api(cluster.topology.node_names[0]).delete_vhost(vhost)


def publishes(folder: Path) -> list[dict[str, Any]]:
    return [row for path in folder.glob("*.publishes.arrows") for row in rows(StreamReader(path, PUBLISHES))]


def deliveries(folder: Path) -> list[dict[str, Any]]:
    return [row for path in folder.glob("*.deliveries.arrows") for row in rows(StreamReader(path, DELIVERIES))]


def rows(reader: StreamReader) -> Iterator[dict[str, Any]]:
    for batch in reader.batches():
        yield from batch.to_pylist()


def messages(rows: list[dict[str, Any]], outcome: Outcome | None = None) -> set[tuple[int, int]]:
    return {(r["publisher"], r["sequence"]) for r in rows if outcome is None or r["outcome"] == outcome}


def await_confirmed(load: RunningWorkload, count: int) -> None:
    def confirmed() -> int:
        load.check()
        return load.progress().confirmed

    wait_until(confirmed, timeout_s=60, what=f"{count} confirms", until=lambda seen: seen >= count)


def drained(cluster: LocalCluster, load: RunningWorkload) -> DrainResult:
    assert load.stop_publishers(timeout_s=60)
    return load.drain(lambda: depths(cluster.api("a1"), load.load.vhost), idle_s=5, timeout_s=60)


def worker_events(folder: Path) -> list[WorkerEvent]:
    return [event for event in read_events(*folder.glob("*.jsonl")) if isinstance(event, WorkerEvent)]
