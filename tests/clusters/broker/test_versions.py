"""Which upgrades are supported, and what is said of those that are not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from rabbitmq_resilience.clusters.broker.versions import (
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
from rabbitmq_resilience.scenarios.model import Scenario
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.workloads.spec import Workload


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
    ],
)
def test_supported(old: str, new: str) -> None:
    assert refusal(old, new) == ""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("3.8.9", "3.10.8", "from 3.8 there is one only to 3.9.x"),
        ("3.10.8", "4.0.5", "from 3.10 there is one only to 3.11.x"),
        ("4.0.5", "4.3.6", "from 4.0 there is one only to 4.1.x or 4.2.x"),
        ("3.11.17", "3.12.4", "3.12 is reached from 3.11.18 on"),
        ("4.3.6", "5.0.0", "from 4.3 there is one to no other series"),
        ("3.10.8", "3.10.7", "is a downgrade"),
        ("4.0.5", "3.13.7", "is a downgrade"),
    ],
)
def test_refused_with_the_reason_and_its_source(old: str, new: str, told: str) -> None:
    assert told in refusal(old, new)
    assert GUIDE in refusal(old, new)


def test_a_way_of_several_steps_is_looked_at_step_by_step() -> None:
    require_supported("3.8.9", ["3.10.8", "3.9.29"])
    with pytest.raises(UnsupportedUpgradeError, match=r"3\.8\.9 to 3\.10\.8"):
        require_supported("3.8.9", ["3.10.8"])
    with pytest.raises(UnsupportedUpgradeError, match=r"4\.0\.5 to 4\.3\.6"):
        require_supported("4.0.5", ["4.3.6"])


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
            "the load has priorities of quorum queues, and RabbitMQ 3.13.7 has none. Take queue_type: classic",
        ),
        (
            {"queue_type": "classic", "durable": False},
            ["4.4.0", "4.3.0"],
            ["3.8.9", "3.10.8", "4.2.1"],
            "the load has queues that are not durable, and RabbitMQ 4.3.0 has none. From 4.3 on brokers refuse",
        ),
        (
            {"queue_type": "mirrored"},
            ["4.3.6", "4.0.5"],
            ["3.8.9", "3.13.7"],
            "the load has mirrored queues, and RabbitMQ 4.0.5 has none. Take queue_type: quorum",
        ),
        (
            {"queue_type": "classic", "lazy": True},
            ["4.0.5", "3.12.0"],
            ["3.8.9", "3.11.28"],
            "the load has lazy queues, and RabbitMQ 3.12.0 has none. From 3.12 on classic queues keep messages on disk",
        ),
        ({"queue_type": "classic", "priorities": [0, 9]}, [], ["3.8.9", "4.3.6"], ""),
        ({"single_active_consumer": True}, [], ["3.8.9", "4.3.6"], ""),
        ({"queue_type": "classic", "exclusive": True, "durable": False}, [], ["3.8.9", "4.3.6"], ""),
        ({"queue_type": "classic", "redeclare": True, "limits": {"expires_ms": 9000}}, [], ["3.8.9", "4.3.6"], ""),
        (
            {"queue_type": "classic", "redeclare": True, "limits": {"expires_ms": 9000}, "durable": False},
            ["4.3.0"],
            ["3.8.9", "4.2.1"],
            "the load has queues that are not durable, and RabbitMQ 4.3.0 has none",
        ),
        ({"churn": {"queues_per_s": 1, "bindings_per_s": 1}}, [], ["3.10.8", "4.3.6"], ""),
        (
            {"limits": {"message_ttl_ms": 9}},
            ["3.9.29"],
            ["3.10.0", "4.3.6"],
            "the load has expiry of messages in quorum queues, and RabbitMQ 3.9.29 has none",
        ),
    ],
)
def test_a_load_is_refused_where_the_version_has_not_what_it_needs(
    fields: dict[str, Any], refused: list[str], taken: list[str], told: str
) -> None:
    workload = Workload.model_validate(fields)
    for version in taken:
        require_features(version, workload.needs)
    for version in refused:
        with pytest.raises(ToolMissingError) as error:
            require_features(version, workload.needs)
    if refused:
        assert told in str(error.value)


def test_what_versions_have_is_told_with_its_source() -> None:
    assert all("(release notes of " in instead for _, _, instead in FEATURES.values())


def test_a_scenario_needs_what_its_load_needs() -> None:
    fields = {"title": "x", "topology": "three_nodes_three_zones", "invariants": {"order": {}}}
    scenario = Scenario.model_validate({**fields, "workload": {"queue_type": "classic", "durable": False}})
    assert scenario.needs == {"queues that are not durable"}
    with pytest.raises(ToolMissingError, match=r"RabbitMQ 4\.3\.6 has none"):
        require_features("4.3.6", scenario.needs)


@pytest.mark.parametrize(("version", "drains"), [("3.8.7", False), ("3.8.8", True), ("3.10.8", True)])
def test_nodes_are_drained_from_3_8_8_on(version: str, drains: bool) -> None:
    with nullcontext() if drains else pytest.raises(ToolMissingError, match=r"play 3\.8\.8 or later"):
        require_maintenance_mode(version, {MAINTENANCE_MODE})
    require_maintenance_mode(version, ())
