"""What a workload says of exchanges, bindings and services: what it stands for, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rabbitmq_resilience.workload.matching import Bound, Reached
from rabbitmq_resilience.workload.routing import HASH_PLUGIN, Routing
from rabbitmq_resilience.workload.services import ProcessingStep, Service
from rabbitmq_resilience.workload.workload_model import Workload
from tests.messages import Messages
from tests.workloads.refusals import LINKS

TOPIC = {"name": "x", "type": "topic"}
HASHED = {"name": "h", "type": "consistent_hash"}
ALL = {"exchange": "x", "queues": "all", "routing_key": "#"}
PUBLISHED = {"exchange": "x", "routing_key": "a"}


def routing(**changed: Any) -> dict[str, Any]:
    return {"exchanges": [TOPIC], "bindings": [ALL], "publish": [PUBLISHED], **changed}


def workload(queues: int = 2, **changed: Any) -> Workload:
    return Workload.model_validate({"queues": queues, "routing": routing(**changed)})


def test_thousands_of_keys_are_dealt_out_to_queues_in_turn() -> None:
    keyed = {"exchange": "x", "routing_key": "price.%d", "routing_keys": 7900}
    asked = workload(
        3,
        exchanges=[{"name": "x", "type": "direct"}],
        bindings=[{**keyed, "queues": ["q3", "q1"]}, {"exchange": "x", "queues": "q2", "routing_key": "price.5"}],
        publish=[keyed],
    )
    assert asked.routing is not None
    assert [turn.routing_key for turn in asked.routing.turns[:2]] == ["price.1", "price.2"]
    reached = asked.routing.reached(asked.queue_names)
    assert len(reached) == 7900
    assert [one.queues for one in reached[:6]] == [{"q3"}, {"q1"}, {"q3"}, {"q1"}, {"q3", "q2"}, {"q1"}]


def test_a_service_stands_for_its_queues() -> None:
    asked = Workload.model_validate(
        {
            "services": [{"name": "billing", "queues": 2}, {"name": "audit"}],
            "routing": routing(
                bindings=[
                    {"exchange": "x", "queues": "service:billing", "routing_key": "a"},
                    {"exchange": "x", "queues": ["audit-1", "service:audit"], "routing_key": "b"},
                ],
                publish=[PUBLISHED, {"exchange": "x", "routing_key": "b"}, {"routing_key": "audit-1"}],
            ),
        }
    )
    assert (asked.queues, asked.consumers) == (3, 2)
    assert asked.queue_names == ["billing-1", "billing-2", "audit-1"]
    assert asked.routing is not None
    assert [sorted(one.queues) for one in asked.routing.reached(asked.queue_names)] == [
        ["billing-1", "billing-2"],
        ["audit-1"],
        ["audit-1"],
    ]


def test_bindings_lead_to_exchanges_and_to_shards() -> None:
    asked = workload(
        4,
        exchanges=[{"name": "x", "type": "fanout"}, HASHED],
        bindings=[
            {"exchange": "x", "to_exchange": "h"},
            {"exchange": "x", "queues": "q4"},
            {"exchange": "h", "queues": ["q3", "q1"]},
            {"exchange": "h", "queues": "q2", "routing_key": "3"},
        ],
    )
    assert asked.routing is not None
    assert asked.routing.reached(asked.queue_names) == [Reached(frozenset({"q4"}), frozenset({"h"}))]
    assert asked.routing.shards(asked.queue_names) == {"h": ["q1", "q2", "q3"]}
    assert asked.routing.plugins == {HASH_PLUGIN}
    assert Bound("h", "q1", False, "1") in asked.routing.bound(asked.queue_names)
    assert Bound("h", "q2", False, "3") in asked.routing.bound(asked.queue_names)


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"exchanges": []}, True),
        ({"exchanges": [TOPIC, TOPIC]}, True),
        ({"exchanges": [TOPIC, {"name": "amq.mine", "type": "topic"}]}, True),
        ({"exchanges": [{**TOPIC, "alternate_exchange": "y"}]}, True),
        ({"bindings": []}, True),
        ({"publish": []}, True),
        ({"publish": [{"exchange": "y"}]}, True),
        ({"publish": [{"routing_key": "nowhere"}]}, True),
        ({"publish": [{**PUBLISHED, "routing_key": "a.%d"}]}, True),
        ({"publish": [{**PUBLISHED, "routing_keys": 5}]}, True),
        ({"publish": [{**PUBLISHED, "routing_key": "ä" * 128}]}, True),
        ({"publish": [{**PUBLISHED, "routing_key": "a.%d", "routing_keys": 20000}] * 2}, True),
        ({"publish": [{**PUBLISHED, "headers": {"x-match": "all"}}]}, True),
        ({"publish": [{**PUBLISHED, "headers": {"kind": 1}}]}, True),
        ({"bindings": [{**ALL, "queues": "q7"}]}, True),
        ({"bindings": [{**ALL, "queues": []}]}, True),
        ({"bindings": [{**ALL, "to_exchange": "x"}]}, True),
        ({"bindings": [{**ALL, "headers": {"a": "b"}}]}, True),
        ({"exchanges": [TOPIC, HASHED], "bindings": [ALL, {"exchange": "h", "queues": "q1"}]}, True),
        (
            {"exchanges": [TOPIC, HASHED], "bindings": [{**ALL, "queues": "q2"}, {"exchange": "h", "queues": "q1"}]}
            | {"publish": [PUBLISHED, {"routing_key": "q1"}]},
            True,
        ),
        ({"exchanges": [TOPIC, HASHED]}, True),
        (
            {"exchanges": [HASHED], "bindings": [{"exchange": "h", "queues": "q1"}] * 2}
            | {"publish": [{"exchange": "h"}]},
            False,
        ),
        (
            {"exchanges": [HASHED], "publish": [{"exchange": "h"}]}
            | {"bindings": [{"exchange": "h", "queues": "q1", "routing_key": key} for key in ("1", "2")]},
            True,
        ),
        (
            {"exchanges": [HASHED], "publish": [{"exchange": "h"}]}
            | {"bindings": [{"exchange": "h", "queues": "q1", "routing_key": "heavy"}]},
            True,
        ),
        ({"exchanges": [TOPIC, HASHED], "bindings": [ALL, {"exchange": "h", "to_exchange": "x"}]}, True),
    ],
)
def test_what_does_not_go_together_is_refused(changed: dict[str, Any], refused: bool, message: Messages) -> None:
    if not refused:  # the same binding twice is one
        workload(**changed)
        return
    with message.of(ValidationError, hide=LINKS):
        workload(**changed)


@pytest.mark.parametrize(
    "stated",
    [
        {"services": [{"name": "a"}], "queues": 2},
        {"services": [{"name": "a", "consumers": 3}], "consumers": 2},
        {"services": [{"name": "a"}], "processing_ms": 5},
        {"services": [{"name": "a"}, {"name": "a"}]},
        {"services": [{"name": "a-1"}]},
        {"services": [{"name": "a"}], "queue_pattern": "b%d"},
        {"routing": routing(), "copy_every": 3},
        {"limits": {"max_length": 5}}
        | {
            "routing": {"exchanges": [HASHED], "bindings": [{"exchange": "h", "queues": "all"}]}
            | {"publish": [{"exchange": "h"}]}
        },
        {"services": [{"name": "a", "processing_ms": 5}], "acks": "automatic"},
    ],
)
def test_what_does_not_go_with_services_and_routing_is_refused(stated: dict[str, Any], message: Messages) -> None:
    with message.of(ValidationError, hide=LINKS):
        Workload.model_validate(stated)


def test_services_are_scaled_each() -> None:
    asked = Workload(services=(Service(name="a", queues=2, consumers=3), Service(name="b")), publishers=2)
    twice = asked.scaled(2)
    assert [(service.queues, service.consumers) for service in twice.services] == [(4, 6), (2, 2)]
    assert (twice.queues, twice.consumers, twice.publishers) == (6, 8, 4)


def test_the_longest_of_what_varies_is_waited_for() -> None:
    slow = Service(name="a", variable_processing=(ProcessingStep(processing_ms=5, for_s=7),))
    assert Workload(services=(slow, Service(name="b"))).variation_s == 7


def test_a_routing_is_read_as_it_is_written() -> None:
    asked = workload()
    assert Workload.model_validate_json(asked.model_dump_json(), strict=True) == asked
    assert isinstance(asked.routing, Routing)
