"""What loads with dead letters demand of their queues, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rabbitmq_resilience.clusters.broker.versions import require_features
from rabbitmq_resilience.scenarios.fault_file import FaultFileError, parse
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.workloads.dead_letters import DeadLetters, Rejected
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
    assert plain.dead_letter_queues == {"orders-1": ("failed-1",), "orders-2": ("failed-2",), "orders-3": ("failed-1",)}
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
        ({"acks": "automatic"}, "reject_one_in does not go with acks: automatic"),
        ({"dead_letters": {**LETTERS, "routing_key": "k"}}, "routing_key goes with an exchange"),
        ({"dead_letters": {**LETTERS, "exchange": "dlx"}}, "dlx is none of the exchanges of routing; they are none"),
        ({"confirms": "ignored"}, "do not go with confirms: ignored"),
        ({"services": [{"name": "orders"}, {"name": "failed", "queues": 2}]}, "failed has 2 queues and the others 1"),
        (
            {"dead_letters": AT_LEAST_ONCE, "limits": {"max_length": 5, "overflow": "drop-head"}},
            "overflow: reject-publish, not drop-head",
        ),
        ({"copy_every": 2}, "do not go with copy_every"),
        (
            {"routing": {"publish": [{"routing_key": "failed-1"}]}},
            "'failed-1' leads to failed-1, which takes dead letters",
        ),
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


def routed(*bindings: dict[str, Any], publish: Sequence[dict[str, Any]], **letters: Any) -> Workload:
    """The exchanges ``in`` (a topic one) and ``hash``; dead letters go to the topic exchange ``dead``."""
    exchanges = [{"name": "in", "type": "topic"}, {"name": "dead", "type": "topic"}]
    if any(binding["exchange"] == "hash" for binding in bindings):
        exchanges.append({"name": "hash", "type": "consistent_hash"})
    routing = {"exchanges": exchanges, "bindings": bindings, "publish": publish}
    return workload(routing=routing, dead_letters={**LETTERS, "exchange": "dead", **letters})


def bound(exchange: str, key: str, *queues: str) -> dict[str, Any]:
    return {"exchange": exchange, "routing_key": key, "queues": list(queues)}


IN = [bound("in", "new.*", "orders-1"), bound("in", "#", "orders-2")]
NEW = [{"exchange": "in", "routing_key": "new.%d", "routing_keys": 3}]


def test_dead_letters_keep_their_routing_keys_or_have_another_one() -> None:
    kept = routed(*IN[:1], bound("dead", "new.#", "failed-1"), publish=NEW)
    assert kept.dead_letter_queues == {"orders-1": ("failed-1",)}
    assert own_arguments(kept, "orders-1") == {"x-dead-letter-exchange": "dead"}
    both = bound("dead", "failed", "failed-1", "failed-2")
    other = routed(*IN[:1], both, publish=NEW, routing_key="failed")
    assert other.dead_letter_queues == {"orders-1": ("failed-1", "failed-2")}
    assert own_arguments(other, "orders-1") == {
        "x-dead-letter-exchange": "dead",
        "x-dead-letter-routing-key": "failed",
    }
    assert own_arguments(other, "failed-1") == {}


def test_each_queue_of_a_message_has_dead_letters_of_its_own() -> None:
    """By the default exchange, the first queue's go to the first one that takes them, in turn."""
    fanned_out = workload(routing={"exchanges": [{"name": "in", "type": "topic"}], "bindings": IN, "publish": NEW})
    assert fanned_out.dead_letter_queues["orders-1"] == ("failed-1",)
    assert fanned_out.dead_letter_queues["orders-2"] == ("failed-2",)


ANY = bound("dead", "#", "failed-1")
HASHED = [{"exchange": "hash", "routing_key": "k.%d", "routing_keys": 9}]


@pytest.mark.parametrize(
    ("bindings", "publish", "told"),
    [
        ([*IN[:1], bound("dead", "old.#", "failed-1")], NEW, "those of orders-1 would go to no queue"),
        ([*IN[:1], bound("dead", "#", "orders-3")], NEW, "those of orders-1 would go to orders-3; let them go to some"),
        (
            [*IN[:1], bound("dead", "new.1", "failed-1"), bound("dead", "new.*", "failed-2")],
            NEW,
            "those of orders-1 would go to different queues by the routing keys of its messages",
        ),
        (
            [*IN, ANY],
            NEW,
            "a message goes to orders-1 and to orders-2, and failed-1 would take the dead letters of both",
        ),
        ([*IN[:1], bound("in", "#", "failed-2"), ANY], NEW, "'new.1' leads to failed-2, which takes dead letters"),
        ([bound("hash", "1", "orders-1", "orders-2"), ANY], HASHED, ""),
    ],
)
def test_it_must_be_known_where_a_dead_letter_comes_from(
    bindings: list[dict[str, Any]], publish: list[dict[str, Any]], told: str
) -> None:
    if not told:
        assert routed(*bindings, publish=publish).dead_letter_queues["orders-2"] == ("failed-1",)
        return
    with pytest.raises(ValidationError) as refused:
        routed(*bindings, publish=publish)
    assert told in str(refused.value)


def test_shards_must_send_their_dead_letters_to_the_same_queues() -> None:
    exchanges = [{"name": "hash", "type": "consistent_hash"}]
    hashed = {"exchanges": exchanges, "bindings": [bound("hash", "1", "orders-1", "orders-2")], "publish": HASHED}
    with pytest.raises(ValidationError, match=r"those of the shards orders-1, orders-2 must all go to the same queues"):
        workload(routing=hashed)


@pytest.mark.parametrize("acks", ["automatic", "early"])
def test_consumers_may_acknowledge_what_they_have_not_worked_on(acks: str) -> None:
    slow = [{**service, "processing_ms": 1 if acks == "early" else 0} for service in SERVICES]
    letters = {"to": "failed"} | ({"reject_one_in": 10} if acks == "early" else {})
    assert workload(acks=acks, services=slow, dead_letters=letters, limits={"message_ttl_ms": 100}).acks == acks


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


NEVER = "reject none of the 700 messages that there are at most; lower it, or send more"


@pytest.mark.parametrize(
    ("load", "phases", "told"),
    [
        (
            "{to: failed, strategy: at_least_once, reject_one_in: 2}",
            "drain_s: 60",
            "a dead letter whose confirm a fault took is published again after 180 s, in the drain; give it more time",
        ),
        ("{to: failed, strategy: at_least_once, reject_one_in: 2}", "drain_s: 240", ""),
        ("{to: failed, reject_one_in: 2}", "drain_s: 60", ""),
        ("{to: failed, reject_one_in: 1000000}, rate_per_s: 7", "recovery_s: 30, settled_s: 56", NEVER),
        ("{to: failed, reject_one_in: 2}, rate_per_s: 7", "recovery_s: 30, settled_s: 56", ""),
        ("{to: failed, reject_one_in: 1000000}, rate_per_s: null", "recovery_s: 30, settled_s: 56", ""),
        (
            "{to: failed, reject_one_in: 1000000}, rate_per_s: 7, limits: {message_ttl_ms: 9}",
            "recovery_s: 30, settled_s: 56",
            "",
        ),
    ],
)
def test_what_could_never_be_judged_is_refused(load: str, phases: str, told: str) -> None:
    text = FILE.replace("steady_s: 5, recovery_s: 60, drain_s: 60", f"steady_s: 5, {phases}")
    if not told:
        parse(text % f", dead_letters: {load}")
        return
    with pytest.raises(FaultFileError) as refused:
        parse(text % f", dead_letters: {load}")
    assert told in str(refused.value)


@given(st.integers(1, 400), st.integers(1, 5), st.integers(1, 400))
def test_none_is_rejected_where_none_of_them_is(one_in: int, publishers: int, messages: int) -> None:
    letters = DeadLetters(to="failed", reject_one_in=one_in)
    rejected = Rejected(one_in)
    each = range(-(-messages // publishers))
    none = not any(rejected(publisher, sequence) for publisher in range(publishers) for sequence in each)
    assert letters.rejects_none(publishers=publishers, messages=messages) == none


@pytest.mark.parametrize("step", ["purge_queue", "delete_queue"])
def test_operators_leave_queues_of_dead_letters_alone(step: str) -> None:
    text = FILE.replace("fault: kill, node: a1", f"fault: {step}, queue: %s")
    load = ", dead_letters: {to: failed, reject_one_in: 2}"
    with pytest.raises(FaultFileError, match=r"failed-1 takes dead letters: those that go with it would be missed"):
        parse(text % (load, "failed-1"))
    parse(text % (load, "orders-1"))


def test_a_load_is_read_as_it_was_saved(tmp_path: Path) -> None:
    saved = replace(load(queues=2), dead_letter_queues={0: (1,)}, reject_one_in=3)
    saved.save(tmp_path)
    assert Load.read(tmp_path) == saved
