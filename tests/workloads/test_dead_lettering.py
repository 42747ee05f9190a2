"""What loads with dead letters demand of their queues, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rabbitmq_resilience.scenario.fault_file import FaultFileError, parse
from rabbitmq_resilience.sut.broker.versions import require_features
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.workload.dead_lettering import DeadLetters, Rejected
from rabbitmq_resilience.workload.load import Load
from rabbitmq_resilience.workload.queues import own_arguments
from rabbitmq_resilience.workload.workload_model import Workload
from tests.messages import Messages
from tests.workloads.refusals import LINKS
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


def test_at_least_once_refuses_what_it_cannot_hold(message: Messages) -> None:
    sure = workload(limits={"max_length": 10}, dead_letters={**LETTERS, "strategy": "at_least_once"})
    assert own_arguments(sure, "orders-1") == {
        "x-max-length": 10,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "failed-1",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    with message.of(ToolMissingError):
        require_features("3.9.8", sure.needs)
    require_features("3.10.0", sure.needs)
    require_features("3.8.9", workload().needs)


AT_LEAST_ONCE = {"to": "failed", "strategy": "at_least_once"}


@pytest.mark.parametrize(
    "fields",
    [
        {"services": []},
        {"dead_letters": {**LETTERS, "to": "fialed"}},
        {"services": SERVICES[1:]},
        {"dead_letters": {"to": "failed"}},
        {"dead_letters": {"to": "failed"}, "limits": {"expires_ms": 5}},
        {"limits": {"expires_ms": 5}},
        {"acks": "automatic"},
        {"dead_letters": {**LETTERS, "routing_key": "k"}},
        {"dead_letters": {**LETTERS, "exchange": "dlx"}},
        {"confirms": "ignored"},
        {"services": [{"name": "orders"}, {"name": "failed", "queues": 2}]},
        {"dead_letters": AT_LEAST_ONCE, "limits": {"max_length": 5, "overflow": "drop-head"}},
        {"copy_every": 2},
        {"routing": {"publish": [{"routing_key": "failed-1"}]}},
        {"dead_letters": AT_LEAST_ONCE, "limits": {"max_length": 5}},
        {"dead_letters": AT_LEAST_ONCE, "limits": {"max_length": 5, "overflow": "drop-head", "message_ttl_ms": 1}},
        {"dead_letters": {**LETTERS, **AT_LEAST_ONCE}, "queue_type": "classic"},
        {"dead_letters": {**LETTERS, "reject_one_in": 0}},
    ],
)
def test_refused(fields: dict[str, Any], message: Messages) -> None:
    with message.of(ValidationError, hide=LINKS):
        workload(**fields)


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
    ("bindings", "publish", "refused"),
    [
        ([*IN[:1], bound("dead", "old.#", "failed-1")], NEW, True),
        ([*IN[:1], bound("dead", "#", "orders-3")], NEW, True),
        ([*IN[:1], bound("dead", "new.1", "failed-1"), bound("dead", "new.*", "failed-2")], NEW, True),
        ([*IN, ANY], NEW, True),
        ([*IN[:1], bound("in", "#", "failed-2"), ANY], NEW, True),
        ([bound("hash", "1", "orders-1", "orders-2"), ANY], HASHED, False),
    ],
)
def test_it_must_be_known_where_a_dead_letter_comes_from(
    bindings: list[dict[str, Any]], publish: list[dict[str, Any]], refused: bool, message: Messages
) -> None:
    if not refused:
        assert routed(*bindings, publish=publish).dead_letter_queues["orders-2"] == ("failed-1",)
        return
    with message.of(ValidationError, hide=LINKS):
        routed(*bindings, publish=publish)


def test_shards_must_send_their_dead_letters_to_the_same_queues(message: Messages) -> None:
    exchanges = [{"name": "hash", "type": "consistent_hash"}]
    hashed = {"exchanges": exchanges, "bindings": [bound("hash", "1", "orders-1", "orders-2")], "publish": HASHED}
    with message.of(ValidationError, hide=LINKS):
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


def test_what_is_demanded_must_be_there(message: Messages) -> None:
    with message.of(FaultFileError):
        parse(FILE % "")


def test_dead_letters_may_have_several_consumers_next_to_order() -> None:
    assert parse(FILE % ", dead_letters: {to: failed, reject_one_in: 2}").generated.consumers == 3


@pytest.mark.parametrize(
    ("load", "demanded"),
    [
        ("{to: failed, strategy: at_least_once, reject_one_in: 2}, limits: {max_length: 5}", "availability"),
        ("{to: failed}, limits: {message_ttl_ms: 5}", "latency"),
    ],
)
def test_what_cannot_be_judged_next_to_dead_letters_is_refused(load: str, demanded: str, message: Messages) -> None:
    text = FILE.replace("order: {}", f"{demanded}: {{}}")
    with message.of(FaultFileError):
        parse(text % f", dead_letters: {load}")


@pytest.mark.parametrize(
    ("load", "phases", "refused"),
    [
        ("{to: failed, strategy: at_least_once, reject_one_in: 2}", "drain_s: 60", True),
        ("{to: failed, strategy: at_least_once, reject_one_in: 2}", "drain_s: 240", False),
        ("{to: failed, reject_one_in: 2}", "drain_s: 60", False),
        ("{to: failed, reject_one_in: 1000000}, rate_per_s: 7", "recovery_s: 30, settled_s: 56", True),
        ("{to: failed, reject_one_in: 2}, rate_per_s: 7", "recovery_s: 30, settled_s: 56", False),
        ("{to: failed, reject_one_in: 1000000}, rate_per_s: null", "recovery_s: 30, settled_s: 56", False),
        (
            "{to: failed, reject_one_in: 1000000}, rate_per_s: 7, limits: {message_ttl_ms: 9}",
            "recovery_s: 30, settled_s: 56",
            False,
        ),
    ],
)
def test_what_could_never_be_judged_is_refused(load: str, phases: str, refused: bool, message: Messages) -> None:
    text = FILE.replace("steady_s: 5, recovery_s: 60, drain_s: 60", f"steady_s: 5, {phases}")
    if not refused:
        parse(text % f", dead_letters: {load}")
        return
    with message.of(FaultFileError):
        parse(text % f", dead_letters: {load}")


@given(st.integers(1, 400), st.integers(1, 5), st.integers(1, 400))
def test_none_is_rejected_where_none_of_them_is(one_in: int, publishers: int, messages: int) -> None:
    letters = DeadLetters(to="failed", reject_one_in=one_in)
    rejected = Rejected(one_in)
    each = range(-(-messages // publishers))
    none = not any(rejected(publisher, sequence) for publisher in range(publishers) for sequence in each)
    assert letters.rejects_none(publishers=publishers, messages=messages) == none


@pytest.mark.parametrize("step", ["purge_queue", "delete_queue"])
def test_operators_leave_queues_of_dead_letters_alone(step: str, message: Messages) -> None:
    text = FILE.replace("fault: kill, node: a1", f"fault: {step}, queue: %s")
    load = ", dead_letters: {to: failed, reject_one_in: 2}"
    with message.of(FaultFileError):
        parse(text % (load, "failed-1"))
    parse(text % (load, "orders-1"))


def test_a_load_is_read_as_it_was_saved(tmp_path: Path) -> None:
    saved = load(queues=2, dead_letter_queues={0: (1,)}, reject_one_in=3)
    saved.save(tmp_path)
    assert Load.read(tmp_path) == saved
