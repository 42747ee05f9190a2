"""What operators do, as steps: refused where it makes no sense, and begun when what it waits for is so."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.conditions import AfterStep, NodeIs, NotCritical, Scene, When
from rabbitmq_resilience.nemesis.targets import Resolver, TargetError
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable
from tests.messages import Messages
from tests.scenarios.test_fault_file import SANE, refused

THREE = topology_catalogue.load("three_nodes_three_zones")


def scheduled(*steps: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in SANE.items() if key not in ("phases", "expect")}
    return {**kept, "schedule": list(steps)}


@pytest.mark.parametrize(
    "step",
    [
        {"at_s": 1, "fault": "alarm", "node": "a1", "resource": "cpu"},
        {"at_s": 1, "fault": "alarm", "node": "x9", "resource": "disk"},
        {"at_s": 1, "fault": "lose_disk", "node": "follower:q9"},
        {"at_s": 1, "fault": "stop", "node": "a1", "configure": {"listeners.tcp.1": "5672"}},
        {"at_s": 1, "fault": "stop", "node": "a1", "configure": {"collect_statistics_interval": "5000"}},
        {"at_s": 1, "fault": "kill", "node": "a1", "configure": {"x": "1"}},
        {"when": {"after_step": {"step": 1}}, "fault": "rebalance"},
        {"when": {"after_step": {"step": 0}, "not_critical": {"node": "x9"}}, "fault": "rebalance"},
        {"when": {}, "fault": "rebalance"},
    ],
)
def test_refused(step: dict[str, Any], message: Messages) -> None:
    first = {"at_s": 0, "for_s": 1, "fault": "kill", "node": "b1"}
    message(refused(scheduled(first, {"for_s": 2, **step})))


def test_two_alarms_of_one_resource_at_a_time_are_refused(message: Messages) -> None:
    """The second would take for the limit what the first has set."""
    alarm = {"fault": "alarm", "node": "a1", "for_s": 5}
    memory, disk = {**alarm, "at_s": 1, "resource": "memory"}, {**alarm, "at_s": 3, "resource": "disk"}
    message(refused(scheduled(memory, {**memory, "at_s": 4})))
    fault_file.parse(yaml.safe_dump(scheduled(memory, disk, {**memory, "at_s": 6})))


def test_a_queue_that_messages_are_routed_to_is_not_deleted(message: Messages) -> None:
    """It would be declared again without its bindings."""
    routing = {
        "exchanges": [{"name": "orders", "type": "fanout"}],
        "bindings": [{"exchange": "orders", "queues": "all"}],
        "publish": [{"exchange": "orders"}],
    }
    load = {"queue_type": "quorum", "queues": 2, "publishers": 1, "consumers": 1, "rate_per_s": 50, "routing": routing}
    step = {"at_s": 1, "for_s": 2, "fault": "delete_queue", "queue": "q1"}
    message(refused({**scheduled(step), "workload": load}))


def test_an_expectation_demands_a_regular_expression(message: Messages) -> None:
    expect = [{"broker": "", "verdict": "INVALID", "invariant": "no_loss", "log": "("}]
    message(refused({**SANE, "expect": expect}))


class Api:
    def __init__(self, *critical: str, error: Exception | None = None) -> None:
        self.critical, self.error = critical, error

    def is_critical(self, check: str) -> bool:
        if self.error:
            raise self.error
        return check in self.critical


def scene(api: Api, healed: dict[int, float], states: dict[str, str]) -> Scene:
    observer: Any = SimpleNamespace(states=states)
    cluster: Any = SimpleNamespace(api=lambda _: api)
    return Scene(observer, cluster, healed.get)


NEXT = When(
    after_step=AfterStep(step=0, wait_s=2), node_is=NodeIs(node="a1", state="up"), not_critical=NotCritical(node="b1")
)


@pytest.mark.parametrize(
    ("api", "healed", "a1", "holds"),
    [
        (Api(), {0: 2.5}, "up", True),
        (Api(), {0: 1.5}, "up", False),
        (Api(), {}, "up", False),
        (Api(), {0: 2.5}, "paused", False),
        (Api("node-is-quorum-critical"), {0: 2.5}, "up", False),
        (Api("node-is-mirror-sync-critical"), {0: 2.5}, "up", False),
        (Api(error=ApiUnreachable("x", "down")), {0: 2.5}, "up", False),
        (Api(error=ApiError(500, "x", "")), {0: 2.5}, "up", False),
    ],
)
def test_all_conditions_must_hold(api: Api, healed: dict[int, float], a1: str, holds: bool) -> None:
    assert NEXT.holds(scene(api, healed, {"a1": a1})) is holds


def test_a_follower_is_chosen_by_the_seed() -> None:
    def chosen(seed: int) -> tuple[str, ...]:
        return Resolver(THREE, lambda _: "a1", random.Random(seed), lambda _: ("c1", "b1")).nodes("follower:q1")  # noqa: S311

    assert {chosen(seed) for seed in range(20)} == {("b1",), ("c1",)}
    assert chosen(7) == chosen(7)


def test_a_queue_without_followers_has_none_to_take(message: Messages) -> None:
    with message.of(TargetError):
        Resolver(THREE, lambda _: "a1", random.Random(0)).nodes("follower:q1")  # noqa: S311
