"""Queues that have no consumer before the drain: what a fault file may state of them."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.workload.workload_model import Workload
from tests.faults.written_steps import refused
from tests.messages import Messages
from tests.scenarios.test_judgeable import demanding
from tests.scenarios.test_judgeable import refused as refused_file

LATE = {"consume": "at_drain"}


def test_a_consumer_of_the_drain_is_no_target(message: Messages) -> None:
    kill = {"at_s": 1, "for_s": 5, "fault": "kill_client", "client": "consumer:0"}
    message(refused(kill, workload=LATE))
    cut = {"at_s": 1, "for_s": 5, "fault": "disconnect", "between": ["consumer:0", "all"]}
    assert "consume: at_drain" in refused(cut, workload=LATE)


def test_the_wait_for_the_drain_is_no_latency(message: Messages) -> None:
    bounds: dict[str, Any] = {"latency": {"bounds": [{"percentile": 99, "within_ms": 500}]}}
    plain = demanding(bounds)
    plain["workload"] |= LATE
    message(refused_file(plain))


@pytest.mark.parametrize(
    "fields", [{"consumers": 0}, {**LATE, "services": [{"name": "billing"}]}], ids=["none", "services"]
)
def test_what_it_replaces_is_refused(fields: dict[str, Any], message: Messages) -> None:
    message(refused(workload=fields))


def test_which_queues_and_consumers_wait() -> None:
    services = [{"name": "one", "queues": 2, "consumers": 1}, {"name": "two", "queues": 1, "consumers": 2, **LATE}]
    workload = Workload.model_validate({"services": services})
    assert (workload.drained_queues, workload.late_consumers) == (("two-1",), frozenset({1, 2}))
    assert Workload.model_validate({**LATE, "consumers": 2, "queues": 3}).drained_queues == ("q1", "q2", "q3")
    assert Workload().drained_queues == ()
