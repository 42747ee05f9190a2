"""What a workload may state, and what it is multiplied."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.workload.parts import RateStep
from rabbitmq_resilience.workload.queue_settings import Mirroring, QueueLimits
from rabbitmq_resilience.workload.queues import own_arguments, queue_arguments, queue_names, queue_policy
from rabbitmq_resilience.workload.services import ProcessingStep
from rabbitmq_resilience.workload.workload_model import Workload
from tests.messages import Messages
from tests.workloads.refusals import LINKS

THREE = Topology(name="three", zones={"a": 1, "b": 1, "c": 1})


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"queue_pattern": "orders"}, "%d"),
        ({"queue_pattern": "q%d-%d"}, "%d"),
        ({"queue_pattern": "q%d%s"}, "%d"),
        ({"queue_pattern": "an order %d"}, "orders-%d"),
        ({"queue_pattern": "amq.%d"}, "Workload"),
        ({"queue_pattern": "declared-%d"}, "Workload"),
        ({"queue_type": "quorum", "lazy": True}, "max_in_memory_length"),
        ({"queue_type": "mirrored", "max_in_memory_length": 0}, "lazy"),
        ({"acks": "automatic", "processing_ms": 1}, "acks: automatic"),
        ({"acks": "automatic", "variable_processing": [{"processing_ms": 1, "for_s": 1}]}, "acks: automatic"),
        ({"acks": "early"}, "Workload"),
        ({"queue_type": "quorum", "durable": False}, "queue_type: classic"),
        ({"limits": {"overflow": "drop-head"}}, "Workload"),
        ({"limits": {"expires_ms": 0}}, "Workload"),
        ({"arguments": {"x-max-length": 5}}, "limits.max_length"),
        ({"arguments": {"x-queue-type": "stream"}}, "queue_type"),
        ({"arguments": {"delivery-limit": 5}}, "Workload"),
        ({"variable_rate": [{"rate_per_s": -1, "for_s": 1}]}, "Workload"),
        ({"variable_rate": [{"rate_per_s": 1, "for_s": 0}]}, "Workload"),
        ({"variable_rate": [{"for_s": 1}]}, "Workload"),
    ],
)
def test_refused(fields: dict[str, Any], names: str, message: Messages) -> None:
    with message.of(ValueError, hide=LINKS) as refusal:
        Workload(**fields)
    assert names in str(refusal.value)


def test_queues_are_named_by_a_pattern() -> None:
    assert queue_names(Workload(queues=3)) == ["q1", "q2", "q3"]
    assert queue_names(Workload(queues=2, queue_pattern="eu.orders-%d_in")) == ["eu.orders-1_in", "eu.orders-2_in"]


def test_one_policy_says_all() -> None:
    assert queue_policy(Workload(queue_type="quorum")) == queue_policy(Workload(queue_type="classic")) == {}
    assert queue_policy(Workload(queue_type="classic", lazy=True)) == {"queue-mode": "lazy"}
    two = Workload(queue_type="mirrored", lazy=True, mirroring=Mirroring(ha_mode="exactly", ha_params=2))
    policy = queue_policy(two)
    assert (policy["queue-mode"], policy["ha-mode"], policy["ha-params"]) == ("lazy", "exactly", 2)


def test_a_limit_of_memory_is_an_argument() -> None:
    assert queue_arguments(Workload(max_in_memory_length=0), THREE)["x-max-in-memory-length"] == 0
    assert "x-max-in-memory-length" not in queue_arguments(Workload(), THREE)


def test_other_arguments_go_with_those_of_the_load() -> None:
    limited = Workload(arguments={"x-delivery-limit": 5, "x-queue-leader-locator": "balanced"})
    assert queue_arguments(limited, THREE) == queue_arguments(Workload(), THREE) | limited.arguments


@pytest.mark.parametrize("queue_type", ["quorum", "mirrored", "classic"])
def test_queues_have_a_single_active_consumer_where_it_is_asked_for(queue_type: str) -> None:
    plain = Workload.model_validate({"queue_type": queue_type})
    single = plain.model_copy(update={"single_active_consumer": True})
    told = {"x-single-active-consumer": True}
    assert queue_arguments(single, THREE) == queue_arguments(plain, THREE) | told


@pytest.mark.parametrize("queue_type", ["quorum", "classic", "mirrored"])
def test_limits_are_arguments_in_the_words_of_the_broker(queue_type: Any) -> None:
    limits = QueueLimits(max_length=7, overflow="reject-publish", message_ttl_ms=0, expires_ms=9)
    told = {"x-max-length": 7, "x-overflow": "reject-publish", "x-message-ttl": 0, "x-expires": 9}
    assert own_arguments(Workload(queue_type=queue_type, limits=limits), "q1") == told
    longest = Workload(queue_type=queue_type, limits=QueueLimits(max_length=7))
    assert own_arguments(longest, "q1") == {"x-max-length": 7}
    assert own_arguments(Workload(queue_type=queue_type), "q1") == {}


LOAD = Workload(
    queues=4,
    publishers=3,
    consumers=1,
    rate_per_s=1000,
    in_flight=70,
    variable_rate=(RateStep(rate_per_s=2001, for_s=10), RateStep(rate_per_s=0, for_s=5)),
    variable_processing=(ProcessingStep(processing_ms=30, for_s=20),),
)


def test_scaled_up_and_down() -> None:
    twice, hardly = LOAD.scaled(2.5), LOAD.scaled(0.0001)
    assert (twice.queues, twice.publishers, twice.consumers, twice.rate_per_s) == (10, 8, 2, 2500)
    assert [step.rate_per_s for step in twice.variable_rate] == [5002, 0]
    assert (hardly.queues, hardly.publishers, hardly.consumers, hardly.rate_per_s) == (1, 1, 1, 1)
    assert [step.rate_per_s for step in hardly.variable_rate] == [1, 0]
    assert (twice.in_flight, twice.variable_processing) == (70, LOAD.variable_processing)
    assert LOAD.scaled(1) == LOAD


def test_no_rate_stays_without_limit() -> None:
    assert Workload(rate_per_s=None, variable_rate=LOAD.variable_rate).scaled(3).rate_per_s is None


@pytest.mark.parametrize("factor", [0, -1, 1000000.0])
def test_it_is_not_scaled_past_what_it_may_be(factor: float, message: Messages) -> None:
    with message.of(ValueError, hide=LINKS):
        LOAD.scaled(factor)


def test_how_long_it_varies() -> None:
    assert (Workload().variation_s, LOAD.variation_s) == (0, 20)


@pytest.mark.parametrize("clients", ["publishers", "consumers"])
def test_clients_beyond_all_bounds_are_refused_at_once(clients: str, message: Messages) -> None:
    with message.of(ValueError, hide=LINKS):
        Workload.model_validate({clients: 10**18})
