"""Which upgrades are supported, and what is said of those that are not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.broker.versions import (
    FEATURES,
    GUIDE,
    MAINTENANCE_MODE,
    UnsupportedUpgradeError,
    next_series,
    refusal,
    require_features,
    require_maintenance_mode,
    require_supported,
)
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.workload.workload_model import Workload
from tests.messages import Messages


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("3.8.9", "3.9.29"),
        ("3.10.8", "3.11.28"),
        ("3.11.18", "3.12.0"),
        ("3.12.14", "3.13.7"),
        ("3.13.7", "4.0.9"),
        ("3.13.7", "4.2.0"),
        ("4.0.5", "4.2.1"),
        ("4.2.3", "4.3.0"),
        ("4.0.5", "4.0.9"),
        ("3.10.8", "3.10.8"),
        ("4.0.5", "4.0"),
        ("4.0.5", "4.2"),
    ],
)
def test_supported(old: str, new: str) -> None:
    assert refusal(old, new) == ""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("3.8.9", "3.10.8", ["3.9.x"]),
        ("3.10.8", "4.0.5", ["3.11.x"]),
        ("4.0.5", "4.3.6", ["4.1.x", "4.2.x"]),
        ("3.11.17", "3.12.4", ["3.11.18"]),
        ("4.3.6", "5.0.0", ["4.3"]),
        ("3.10.8", "3.10.7", []),
        ("4.0.5", "3.13.7", []),
    ],
)
def test_refused_with_the_reason_and_its_source(old: str, new: str, told: list[str], message: Messages) -> None:
    text = refusal(old, new)
    assert all(version in text for version in told)
    assert GUIDE in text
    message(text)


def test_a_way_of_several_steps_is_looked_at_step_by_step(message: Messages) -> None:
    require_supported("3.8.9", ["3.10.8", "3.9.29"])
    with message.of(UnsupportedUpgradeError):
        require_supported("3.8.9", ["3.10.8"])
    with message.of(UnsupportedUpgradeError):
        require_supported("4.0.5", ["4.3.6"])


def test_a_version_on_the_way_must_have_what_the_scenario_needs() -> None:
    require_supported("3.13.7", ["4.0.5"], ["lazy messages of no known feature"])
    with pytest.raises(ToolMissingError, match=r"mirrored queues, which RabbitMQ 4\.0\.5 does not support"):
        require_supported("3.13.7", ["4.0.5"], ["mirrored queues"])
    with pytest.raises(ToolMissingError, match=r"RabbitMQ 4\.2\.0 has none"):
        require_supported("4.1.0", ["4.2.0"], ["RAM nodes"])


def test_the_next_series_is_the_nearest() -> None:
    assert next_series("3.13.7") == "4.0"
    assert next_series("3.8.9") == "3.9"
    assert next_series("4.3.6") is None


@pytest.mark.parametrize(
    ("fields", "refused", "taken", "told"),
    [
        (
            {"priorities": [0, 9]},
            ["3.10.8", "3.13.7"],
            ["4.0.5", "4.3.6"],
            "queue_type: classic",
        ),
        (
            {"queue_type": "classic", "durable": False},
            ["4.4.0", "4.3.0"],
            ["3.8.9", "3.10.8", "4.2.1"],
            "4.3.0",
        ),
        (
            {"queue_type": "mirrored"},
            ["4.3.6", "4.0.5"],
            ["3.8.9", "3.13.7"],
            "queue_type: quorum",
        ),
        (
            {"queue_type": "classic", "lazy": True},
            ["4.0.5", "3.12.0"],
            ["3.8.9", "3.11.28"],
            "3.12.0",
        ),
        ({"queue_type": "classic", "priorities": [0, 9]}, [], ["3.8.9", "4.3.6"], ""),
        ({"single_active_consumer": True}, [], ["3.8.9", "4.3.6"], ""),
        ({"queue_type": "classic", "exclusive": True, "durable": False}, [], ["3.8.9", "4.3.6"], ""),
        ({"queue_type": "classic", "redeclare": True, "limits": {"expires_ms": 9000}}, [], ["3.8.9", "4.3.6"], ""),
        (
            {"queue_type": "classic", "redeclare": True, "limits": {"expires_ms": 9000}, "durable": False},
            ["4.3.0"],
            ["3.8.9", "4.2.1"],
            "4.3.0",
        ),
        ({"churn": {"queues_per_s": 1, "bindings_per_s": 1}}, [], ["3.10.8", "4.3.6"], ""),
        ({"arguments": {"x-consumer-disconnected-timeout": 9000}}, ["4.2.1", "3.13.7"], ["4.3.6"], "4.3"),
        ({"arguments": {"x-delayed-retry-type": "all"}}, ["4.0.5"], ["4.3.6"], "4.3"),
        ({"arguments": {"x-consumer-timeout": 60_000}}, ["3.10.8"], ["3.12.0", "4.0.5", "4.3.6"], "consumer_timeout"),
        (
            {"queue_type": "classic", "arguments": {"x-queue-mode": "default"}},
            ["4.3.0"],
            ["3.10.8", "4.2.1"],
            "4.3.0",
        ),
        (
            {"queue_type": "classic", "arguments": {"x-queue-master-locator": "min-masters"}},
            ["4.3.0"],
            ["3.10.8", "4.2.1"],
            "x-queue-leader-locator",
        ),
        ({"queue_type": "classic", "arguments": {"x-queue-version": 1}}, ["4.3.0"], ["3.10.8", "4.2.1"], "4.3.0"),
        ({"queue_type": "classic", "arguments": {"x-queue-version": 2}}, [], ["3.10.8", "4.3.6"], ""),
        ({"arguments": {"x-delivery-limit": 5, "x-queue-leader-locator": "balanced"}}, [], ["3.10.8", "4.3.6"], ""),
        (
            {"limits": {"message_ttl_ms": 9}},
            ["3.9.29"],
            ["3.10.0", "4.3.6"],
            "3.9.29",
        ),
    ],
)
def test_a_load_is_refused_where_the_version_has_not_what_it_needs(
    fields: dict[str, Any], refused: list[str], taken: list[str], told: str, message: Messages
) -> None:
    workload = Workload.model_validate(fields)
    for version in taken:
        require_features(version, workload.needs)
    for version in refused:
        with message.of(ToolMissingError) as error:
            require_features(version, workload.needs)
        assert version in str(error.value)
    if refused:
        assert told in str(error.value)


def test_small_frames_are_refused_from_4_1_on(message: Messages) -> None:
    small = Topology(name="one", zones={"a": 1}, settings={"frame_max": 4096})
    require_features("4.0.5", small.needs)
    with message.of(ToolMissingError):
        require_features("4.1.0", small.needs)
    require_features("4.1.0", Topology(name="one", zones={"a": 1}, settings={"frame_max": 8192}).needs)


def test_what_versions_have_is_reported_with_its_source() -> None:
    assert all("(release notes of " in instead for _, _, instead in FEATURES.values())


def test_a_scenario_needs_what_its_load_needs(message: Messages) -> None:
    fields = {"title": "x", "topology": "three_nodes_three_zones", "invariants": {"order": {}}}
    scenario = Scenario.model_validate({**fields, "workload": {"queue_type": "classic", "durable": False}})
    assert scenario.needs == {"queues that are not durable"}
    with message.of(ToolMissingError):
        require_features("4.3.6", scenario.needs)


@pytest.mark.parametrize(("version", "drains"), [("3.8.7", False), ("3.8.8", True), ("3.10.8", True)])
def test_nodes_are_drained_from_3_8_8_on(version: str, drains: bool) -> None:
    with nullcontext() if drains else pytest.raises(ToolMissingError, match=r"3\.8\.8"):
        require_maintenance_mode(version, {MAINTENANCE_MODE})
    require_maintenance_mode(version, ())
