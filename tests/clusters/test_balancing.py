"""Load balancers as a topology states them, and as HAProxy is told."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.network_settings import Balancers, HealthCheck
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.balancing import configuration
from rabbitmq_resilience.sut.broker.versions import require_ram_nodes
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.tools.distributions import ToolMissingError
from tests.messages import Messages

BROKERS = {"a1": "127.0.0.1:5672", "b1": "127.0.0.1:5673"}

#: Pydantic's errors name its version.
PYDANTIC = {r"https://errors\.pydantic\.dev/[^/]+/": "PYDANTIC/"}


def topology(**fields: Any) -> Topology:
    return Topology.model_validate({"name": "balanced", "zones": {"a": 1, "b": 1, "c": 1}, **fields})


def told(spec: Balancers, *, speaks_amqp: bool = False) -> list[str]:
    text = configuration(spec, listen="127.0.0.1:5670", brokers=BROKERS, speaks_amqp=speaks_amqp)
    return [line.strip() for line in text.splitlines()]


def test_a_number_is_short_for_a_mapping() -> None:
    assert topology(balancers=2) == topology(balancers={"count": 2})
    assert topology(balancers=2).balancer_names == ("balancer:0", "balancer:1")
    assert topology().balancer_names == ()


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"balancers": 0}, "balancers.count"),
        ({"balancers": 5}, "balancers.count"),
        ({"balancers": True}, "balancers"),
        ({"balancers": {"count": 2, "algorithm": "fastest"}}, "balancers.algorithm"),
        ({"balancers": {"check": {"interval": 2}}}, "balancers.check.interval"),
        ({"without_clients": ["d1"]}, "without_clients"),
        ({"without_clients": ["a1", "b1", "c1"]}, "without_clients"),
        ({"ram_nodes": ["a2"]}, "ram_nodes"),
        ({"ram_nodes": ["a1", "b1", "c1"]}, "ram_nodes"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], place: str, message: Messages) -> None:
    with message.of(ValidationError, hide=PYDANTIC) as refused:
        topology(**fields)
    assert place in str(refused.value)


def test_haproxy_gets_what_the_topology_says() -> None:
    spec = Balancers(algorithm="leastconn", check=HealthCheck(inter_s=0.5, rise=3, fall=4), idle_timeout_s=60)
    lines = told(spec)
    assert "balance leastconn" in lines
    assert "timeout client 60000ms" in lines
    assert "option clitcpka" in lines
    assert [line for line in lines if line.startswith("server")] == [
        f"server {node} {place} check inter 500ms rise 3 fall 4 on-marked-down shutdown-sessions"
        for node, place in BROKERS.items()
    ]
    assert not any("shutdown-sessions" in line for line in told(Balancers(shutdown_sessions=False)))


def test_brokers_that_move_are_found_by_name() -> None:
    text = configuration(Balancers(), listen="0.0.0.0:5670", brokers=BROKERS, speaks_amqp=False, moves=True)
    assert text.index("resolvers names") < text.index("listen amqp")
    servers = [line for line in text.splitlines() if line.startswith("    server ")]
    assert len(servers) == len(BROKERS)
    assert all("resolvers names" in line for line in servers)
    assert not any("resolvers" in line for line in told(Balancers()))


def test_checks_over_proxies_want_an_answer_of_the_broker() -> None:
    assert not any("tcp-check" in line for line in told(Balancers()))
    assert "tcp-check send-binary 414d515000000901" in told(Balancers(), speaks_amqp=True)


def test_clients_have_links_to_balancers_where_there_are_some() -> None:
    plain, balanced = topology(), topology(balancers=2)
    to_node, to_balancer, behind = (
        Link("publisher:0", "a1"),
        Link("publisher:0", "balancer:1"),
        Link("balancer:1", "a1"),
    )
    assert [plain.has_link(link) for link in (to_node, to_balancer, behind)] == [True, False, False]
    assert [balanced.has_link(link) for link in (to_node, to_balancer, behind)] == [False, True, True]
    assert not balanced.has_link(Link("publisher:0", "balancer:2"))
    assert not balanced.has_link(Link("balancer:0", "balancer:1"))
    assert not plain.has_link(Link("publisher:0", "consumer:0"))
    assert [link.client for link in (to_balancer, to_balancer.back, behind, behind.back)] == [
        "publisher:0",
        "publisher:0",
        "balancer:1",
        "balancer:1",
    ]
    assert [link.answering for link in (to_node, to_balancer, to_balancer.back, behind.back)] == [
        "a1",
        "balancer:1",
        "balancer:1",
        "a1",
    ]


@pytest.mark.core
def test_what_is_missing_is_reported_before_anything_starts(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    monkeypatch.setenv("HAPROXY", "/nowhere")
    require = DRIVERS["local"].open(None).require
    require(topology().needs)
    with message.of(ToolMissingError):
        require(topology(balancers=1).needs)


def test_ram_nodes_are_refused_where_a_version_has_none(message: Messages) -> None:
    needs = topology(ram_nodes=["b1"]).needs
    require_ram_nodes("3.10.8", needs)
    require_ram_nodes("4.1.3", needs)
    require_ram_nodes("4.3.6", topology().needs)
    with message.of(ToolMissingError):
        require_ram_nodes("4.2.0", needs)
