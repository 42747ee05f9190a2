"""What loads with dead letters demand of their queues, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rabbitmq_resilience.clusters.broker.versions import require_features
from rabbitmq_resilience.scenarios.fault_file import FaultFileError, parse
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.workloads.load import Load
from rabbitmq_resilience.workloads.queues import own_arguments
from rabbitmq_resilience.workloads.spec import Workload
from tests.workloads.test_settlement import load

SERVICES = [{"name": "orders", "queues": 3, "consumers": 3}, {"name": "failed", "queues": 2, "consumers": 2}]
LETTERS = {"to": "failed", "reject_one_in": 10}


def workload(**fields: Any) -> Workload:
    return Workload.model_validate({"services": SERVICES, "dead_letters": LETTERS, **fields})


def test_the_queues_of_one_service_take_the_dead_letters_of_all_others() -> None:
    plain = workload()
    assert plain.dead_letter_queues == {"orders-1": "failed-1", "orders-2": "failed-2", "orders-3": "failed-1"}
    assert plain.published_queues == ["orders-1", "orders-2", "orders-3"]
    assert own_arguments(plain, "orders-2") == {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "failed-2"}
    assert own_arguments(plain, "failed-2") == {}


def test_limits_are_none_of_those_that_take_them() -> None:
    limited = workload(limits={"message_ttl_ms": 100}, dead_letters={"to": "failed"})
    assert own_arguments(limited, "orders-1")["x-message-ttl"] == 100
    assert own_arguments(limited, "failed-1") == {}


def test_at_least_once_refuses_what_it_cannot_hold() -> None:
    sure = workload(limits={"max_length": 10}, dead_letters={**LETTERS, "strategy": "at_least_once"})
    assert own_arguments(sure, "orders-1") == {
        "x-max-length": 10,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "failed-1",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    with pytest.raises(
        ToolMissingError, match=r"dead letters that arrive at least once, and RabbitMQ 3\.9\.8 has none"
    ):
        require_features("3.9.8", sure.needs)
    require_features("3.10.0", sure.needs)
    require_features("3.8.9", workload().needs)


AT_LEAST_ONCE = {"to": "failed", "strategy": "at_least_once"}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"services": []}, "to: failed is none of the services; they are none: state services"),
        ({"dead_letters": {**LETTERS, "to": "fialed"}}, "to: fialed is none of the services; they are orders, failed"),
        ({"services": SERVICES[1:]}, "failed is the only service"),
        ({"dead_letters": {"to": "failed"}}, "nothing becomes one; say how many messages consumers reject"),
        ({"dead_letters": {"to": "failed"}, "limits": {"expires_ms": 5}}, "do not go with limits.expires_ms"),
        ({"limits": {"expires_ms": 5}}, "do not go with limits.expires_ms"),
        ({"acks": "automatic"}, "do not go with acks: automatic"),
        ({"confirms": "ignored"}, "do not go with confirms: ignored"),
        ({"services": [{"name": "orders"}, {"name": "failed", "queues": 2}]}, "failed has 2 queues and the others 1"),
        (
            {"dead_letters": AT_LEAST_ONCE, "limits": {"max_length": 5, "overflow": "drop-head"}},
            "overflow: reject-publish, not drop-head",
        ),
        ({"copy_every": 2}, "do not go with copy_every"),
        ({"routing": {"publish": [{"routing_key": "orders-1"}]}}, "do not go with routing"),
        ({"dead_letters": AT_LEAST_ONCE, "limits": {"max_length": 5}}, "nothing becomes one"),
        (
            {"dead_letters": AT_LEAST_ONCE, "limits": {"max_length": 5, "overflow": "drop-head", "message_ttl_ms": 1}},
            "overflow: reject-publish, not drop-head",
        ),
        ({"dead_letters": {**LETTERS, **AT_LEAST_ONCE}, "queue_type": "classic"}, "quorum, not classic"),
        ({"dead_letters": {**LETTERS, "reject_one_in": 0}}, "greater than or equal to 1"),
    ],
)
def test_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        workload(**fields)
    assert told in str(refused.value)


FILE = """\
version: 1
title: Dead letters
topology: three_nodes_three_zones
seed: 1
workload: {services: [{name: orders}, {name: failed, consumers: 2}]%s}
phases: {steady_s: 5, recovery_s: 60, drain_s: 60}
schedule: [{at_s: 1, for_s: 8, fault: kill, node: a1}]
invariants: {dead_letters: {}, order: {}}
"""


def test_what_is_demanded_must_be_there() -> None:
    with pytest.raises(FaultFileError, match=r"the invariant dead_letters is demanded, and there are none"):
        parse(FILE % "")


def test_dead_letters_may_have_several_consumers_beside_order() -> None:
    assert parse(FILE % ", dead_letters: {to: failed, reject_one_in: 2}").workload.consumers == 3


@pytest.mark.parametrize(
    ("load", "demanded", "told"),
    [
        ("{to: failed, strategy: at_least_once, reject_one_in: 2}, limits: {max_length: 5}", "availability", "fill it"),
        ("{to: failed}, limits: {message_ttl_ms: 5}", "latency", "never arrives, so that its latency has no end"),
    ],
)
def test_what_cannot_be_judged_beside_dead_letters_is_refused(load: str, demanded: str, told: str) -> None:
    text = FILE.replace("order: {}", f"{demanded}: {{}}")
    with pytest.raises(FaultFileError) as refused:
        parse(text % f", dead_letters: {load}")
    assert told in str(refused.value)


def test_a_load_is_read_as_it_was_saved(tmp_path: Path) -> None:
    saved = replace(load(queues=2), dead_letter_queues={0: 1}, reject_one_in=3)
    saved.save(tmp_path)
    assert Load.read(tmp_path) == saved
