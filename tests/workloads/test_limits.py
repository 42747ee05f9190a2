"""Clients that this machine cannot connect are told before anything is started."""

from __future__ import annotations

import re
import resource
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Invariants, Scenario
from rabbitmq_resilience.scenario.validation import validated
from rabbitmq_resilience.workload import limits
from rabbitmq_resilience.workload.limits import OTHERS, Limits
from rabbitmq_resilience.workload.load import IDLE_TOGETHER
from rabbitmq_resilience.workload.workload_model import Workload
from tests.messages import Messages
from tests.workloads.test_settlement import load


def fields(
    known: Limits,
    *,
    addresses: int = 3,
    brokers: int = 3,
    balanced: bool = False,
    away: int = 0,
    proxied: bool = False,
    **load_fields: Any,
) -> dict[str, str]:
    ways: dict[str, Any] = {"balanced": balanced, "away": away, "proxied": proxied}
    return dict(known.problems(Workload(**load_fields), addresses=addresses, brokers=brokers, **ways))


def test_without_limits_all_is_well() -> None:
    assert fields(Limits(), publishers=100_000, consumers=100_000, idle_connections=100_000) == {}


@pytest.mark.parametrize("name", ["publishers", "consumers"])
def test_a_process_has_a_descriptor_for_each_of_its_clients(name: str, message: Messages) -> None:
    as_many: dict[str, Any] = {name: 4 * (1024 - OTHERS)}
    assert fields(Limits(descriptors=1024), **as_many) == {}
    as_many[name] += 1
    told = fields(Limits(descriptors=1024), **as_many)
    assert told.keys() == {name}
    assert {"1025", "1024"} <= set(re.findall(r"\d+", told[name]))
    message(told[name])


def test_idle_connections_share_processes(message: Messages) -> None:
    assert fields(Limits(descriptors=IDLE_TOGETHER + OTHERS), idle_connections=100_000) == {}
    told = fields(Limits(descriptors=1024), idle_connections=13_000)
    assert "4000 of 13000" in told["idle_connections"]
    message(told["idle_connections"])


def test_a_broker_keeps_some_descriptors_for_itself(message: Messages) -> None:
    """With 1,124 it takes 919 connections: nine tenths of what is left without a hundred, and two fewer."""
    assert fields(Limits(broker_descriptors=1124), idle_connections=2 * 919 - 2, brokers=2) == {}
    told = fields(Limits(broker_descriptors=1124), idle_connections=2 * 919 - 1, brokers=2)
    assert {"920", "919"} <= set(re.findall(r"\d+", told["idle_connections"]))
    message(told["idle_connections"])


def test_connections_to_one_address_come_from_different_ports(message: Messages) -> None:
    assert fields(Limits(ports=28_232), publishers=28_231, consumers=1, addresses=1) == {}
    told = fields(Limits(ports=28_232), publishers=28_232, consumers=1, addresses=1)
    assert {"28233", "28232"} <= set(re.findall(r"\d+", told["publishers"]))
    message(told["publishers"])
    assert fields(Limits(ports=28_232), publishers=28_232, consumers=1, addresses=2) == {}


def test_a_balancer_has_two_descriptors_for_each_connection(message: Messages) -> None:
    known = Limits(descriptors=20_000)
    most: dict[str, Any] = {"publishers": 26, "consumers": 104}
    assert fields(known, addresses=2, balanced=True, idle_connections=2 * 9950 - 130, **most) == {}
    told = fields(known, addresses=2, balanced=True, idle_connections=2 * 9950 - 129, **most)
    assert {"9951", "9950"} <= set(re.findall(r"\d+", told["idle_connections"]))
    message(told["idle_connections"])
    assert fields(known, addresses=2, idle_connections=2 * 9950 - 129, **most) == {}
    assert fields(Limits(), addresses=1, balanced=True, idle_connections=20_001 - 130, **most)


def test_the_balancers_that_a_step_leaves_take_all_connections(message: Messages) -> None:
    known = Limits(descriptors=20_000)
    most: dict[str, Any] = {"balanced": True, "publishers": 26, "consumers": 104, "idle_connections": 2 * 9950 - 130}
    assert fields(known, addresses=3, away=1, **most) == {}
    assert fields(known, addresses=2, away=2, **most) == {}, "while all are away nobody is connected"
    told = fields(known, addresses=2, away=1, **most)
    assert {"19900", "9950"} <= set(re.findall(r"\d+", told["idle_connections"]))
    message(told["idle_connections"])


def test_a_scenario_is_refused_where_the_other_balancers_cannot_take_all(
    monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20_000, 20_000))

    def check(*balancers: str) -> None:
        scenario = Scenario(
            title="Many",
            topology=topology_catalogue.load("three_nodes_two_balancers"),
            workload=Workload(idle_connections=13_000),
            invariants=Invariants.model_validate({"no_loss": {}}),
            schedule=tuple(Kill(at_s=1, for_s=3, node=name) for name in balancers),
        )
        validated(scenario, driver="local")

    check()
    check("balancer:all")
    with message.of(fault_file.FaultFileError) as refused:
        check("balancer:1")
    assert "idle_connections" in str(refused.value)


def test_a_proxy_has_two_descriptors_for_each_connection(message: Messages) -> None:
    known = Limits(descriptors=20_000)
    assert fields(known, idle_connections=13_000) == {}
    assert fields(known, idle_connections=9_900, proxied=True) == {}
    told = fields(known, idle_connections=13_000, proxied=True)
    assert {"13002", "26068"} <= set(re.findall(r"\d+", told["idle_connections"]))
    message(told["idle_connections"])


def test_limits_are_those_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = tmp_path / "ports"
    ports.write_text("32768\t60999\n")
    monkeypatch.setattr(limits, "PORT_RANGE", ports)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    assert Limits.of_this_machine(broker_descriptors=None) == Limits(4096, None, 28_232)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(limits, "PORT_RANGE", tmp_path / "none")
    assert Limits.of_this_machine(broker_descriptors=7) == Limits(None, 7, None)


def test_a_scenario_is_refused_with_the_limit(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    scenario = Scenario(
        title="Many",
        topology=topology_catalogue.load("three_nodes_three_zones"),
        workload=Workload(idle_connections=13_000),
        invariants=Invariants.model_validate({"no_loss": {}}),
    )
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    validated(scenario, driver=None)  # it was played already, wherever that was
    with message.of(fault_file.FaultFileError) as refused:
        validated(scenario, driver="local")
    assert "idle_connections" in str(refused.value)


def test_the_processes_next_to_those_of_clients() -> None:
    assert load().background() == []
    many = load(idle_connections=2 * IDLE_TOGETHER + 1, churn={"connections_per_s": 1.0})
    assert [process.name for process in many.background()] == ["idle-0", "idle-1", "idle-2", "churn-0"]
