"""Clusters of one node and of two, and lines of rabbitmq.conf that a topology states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.compose import document, rabbitmq_conf
from tests.messages import Messages

PLAIN: dict[str, Any] = {
    "title": "A small cluster",
    "workload": {"queue_type": "classic"},
    "invariants": {"no_loss": {}},
}


def parsed(topology: Mapping[str, Any], *schedule: Mapping[str, Any]) -> Scenario:
    plain = {**PLAIN, "topology": {"name": "small", **topology}, "schedule": list(schedule)}
    return fault_file.parse(yaml.safe_dump(plain, sort_keys=False))


@pytest.mark.parametrize("zones", [{"a": 1}, {"a": 2}, {"a": 1, "b": 1}])
def test_a_small_cluster_may_be_played_and_its_node_killed(zones: Mapping[str, int]) -> None:
    scenario = parsed({"zones": zones}, {"at_s": 1, "for_s": 2, "fault": "kill", "node": "a1"})
    assert len(scenario.topology.nodes) == sum(zones.values())


def test_one_node_cannot_be_parted() -> None:
    with pytest.raises(FaultFileError, match=r"schedule\[0\]\.between"):
        parsed({"zones": {"a": 1}}, {"at_s": 1, "for_s": 2, "fault": "partition", "between": ["a1", "rest"]})


def test_two_nodes_can() -> None:
    parsed({"zones": {"a": 2}}, {"at_s": 1, "for_s": 2, "fault": "partition", "between": ["a1", "a2"]})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("listeners.tcp.1", 5672, "topology.settings.listeners.tcp.1: "),
        ("collect_statistics_interval", 30_000, "topology.statistics_interval_s"),
        ("net_ticktime", 60, "topology.net_ticktime_s"),
        ("cluster_partition_handling", "autoheal", "topology.partition_handling"),
        ("a b", 1, "topology.settings"),
        ("channel_max", "7\nlisteners.tcp.1 = 5672", "topology.settings"),
        ("channel_max", None, "topology.settings"),
    ],
)
def test_what_is_no_line_of_ones_own_is_refused(name: str, value: object, told: str, message: Messages) -> None:
    with pytest.raises(FaultFileError) as refused:
        parsed({"zones": {"a": 3}, "settings": {name: value}})
    assert told in str(refused.value)
    message(refused.value)


def test_settings_stand_in_rabbitmq_conf_as_they_are_written_there() -> None:
    scenario = parsed({"zones": {"a": 3}, "settings": {"channel_max": 7, "vm_memory_high_watermark.relative": 0.5}})
    lines = rabbitmq_conf(scenario.topology).splitlines()
    assert {"channel_max = 7", "vm_memory_high_watermark.relative = 0.5"} <= set(lines)
    switched = parsed({"zones": {"a": 3}, "settings": {"mirroring_flow_control": False}})
    assert "mirroring_flow_control = false" in rabbitmq_conf(switched.topology).splitlines()
    assert fault_file.parse(fault_file.dump(switched)).topology == switched.topology


def test_only_containers_are_held_to_a_size(message: Messages) -> None:
    sized = {"zones": {"a": 3}, "broker_size": {"cores": 0.5, "memory_mb": 512}}
    with message.of(FaultFileError) as refused:
        parsed(sized)
    assert "topology.broker_size: " in str(refused.value)
    assert "driver local" in str(refused.value)
    text = yaml.safe_dump({**PLAIN, "topology": {"name": "small", **sized}})
    assert fault_file.parse(text, driver="docker").topology.broker_size is not None


def test_brokers_renew_their_numbers_as_often_as_the_topology_says() -> None:
    assert "collect_statistics_interval = 1000\n" in rabbitmq_conf(parsed({"zones": {"a": 3}}).topology)
    slow = parsed({"zones": {"a": 3}, "statistics_interval_s": 30}).topology
    assert "collect_statistics_interval = 30000\n" in rabbitmq_conf(slow)


def test_brokers_are_given_the_memory_that_they_are_held_to() -> None:
    sized: dict[str, Any] = {"name": "s", "zones": {"a": 1}, "broker_size": {"cores": 0.5, "memory_mb": 512}}
    assert "total_memory_available_override_value = 536870912" in rabbitmq_conf(Topology.model_validate(sized))
    stated = {**sized, "settings": {"total_memory_available_override_value": "400MB"}}
    assert "total_memory_available_override_value = 400MB" in rabbitmq_conf(Topology.model_validate(stated))
    assert "total_memory" not in rabbitmq_conf(Topology.model_validate({"name": "s", "zones": {"a": 1}}))


def test_compose_holds_brokers_to_their_size() -> None:
    topology = Topology.model_validate(
        {"name": "s", "zones": {"a": 1}, "broker_size": {"cores": 0.5, "memory_mb": 512}}
    )
    (broker,) = (service for name, service in document(topology)["services"].items() if name == "a1")
    assert (broker["cpus"], broker["mem_limit"]) == (0.5, 512 * 2**20)
