"""How the life of a worker ends, and what is told of it; no broker answers here."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from rabbitmq_resilience.history.event_log import examine_events, read_events
from rabbitmq_resilience.history.events import WorkerEvent
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload import worker as module
from rabbitmq_resilience.workload.counters import Counters
from rabbitmq_resilience.workload.load import Role, WorkerClients
from rabbitmq_resilience.workload.worker import Worker, WorkloadError
from tests.messages import Messages
from tests.workloads.test_settlement import load


def told(worker: Worker) -> list[tuple[str, int | None]]:
    events = [event for event in read_events(worker.events_file) if isinstance(event, WorkerEvent)]
    return [(event.event, event.life) for event in events]


def has_begun(worker: Worker, life: int) -> bool:
    return worker.events_file.exists() and ("started", life) in told(worker)


@pytest.mark.core
@pytest.mark.parametrize("role", ["publisher", "consumer"])
def test_a_worker_that_hung_is_distinguished_from_one_that_was_killed_on_purpose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role
) -> None:
    load().save(tmp_path)
    Counters(tmp_path, workers=2, create=True).close()
    worker = Worker(WorkerClients(role, (0,)), tmp_path, {})
    for life in range(3):
        worker.start()
        begun = partial(has_begun, worker, life)
        wait_until(begun, timeout_s=60, what="the worker to begin")
        if life == 0:
            worker.kill()
        elif life == 1:
            worker.end()
        else:
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGSTOP)
            monkeypatch.setattr(module, "END_TIMEOUT_S", 1.0)
            worker.end()
    ends = [(event, life) for event, life in told(worker) if event != "started"]
    assert ends == [("killed", 0), ("stopped", 1), ("hung", 2)]
    assert examine_events(worker.events_file)[1] == []


def test_no_one_is_killed_who_shares_a_process(tmp_path: Path, message: Messages) -> None:
    worker = Worker(WorkerClients("publisher", (0, 4)), tmp_path, {})
    assert (worker.name, worker.clients) == ("publishers-0", ["publisher-0", "publisher-4"])
    with message.of(WorkloadError):
        worker.kill()
