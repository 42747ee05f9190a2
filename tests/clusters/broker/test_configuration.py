from pathlib import Path

import pytest
from pydantic import ValidationError

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import PauseIfAllDown, Topology
from rabbitmq_resilience.sut.broker.configuration import (
    formation_keys,
    harness_keys,
    partition_handling_keys,
    read_user_file,
    render_conf,
)
from rabbitmq_resilience.sut.broker.files import NodePorts
from tests.messages import Messages

PORTS = NodePorts(amqp=1, management=2, distribution=3, epmd=4, prometheus=5)

#: Pydantic's errors name its version.
PYDANTIC = {r"https://errors\.pydantic\.dev/[^/]+/": "PYDANTIC/"}


def at_localhost(node: str) -> str:
    return f"{node}@localhost"


OWNED = harness_keys(
    Topology(name="t", zones={"a": 3}), PORTS, formation_keys((3, 10), ("a1@localhost",)), at_localhost
)


def settings(text: str) -> dict[str, str]:
    pairs = (line.split(" = ") for line in text.splitlines() if line and not line.startswith("#"))
    return {key: value for key, value in pairs}


def test_without_a_user_file_only_ours() -> None:
    conf = render_conf("", OWNED)

    assert settings(conf.text) == OWNED
    assert conf.replaced == ()


def test_a_broker_that_is_reached_from_elsewhere_lets_its_user_in_from_there() -> None:
    topology = Topology(name="t", zones={"a": 3})
    keys = harness_keys(topology, PORTS, {}, at_localhost, listen="0.0.0.0")  # noqa: S104 - inside a container

    assert keys["loopback_users"] == "none"
    assert keys["listeners.tcp.1"] == "0.0.0.0:1"
    assert "loopback_users" not in OWNED


def test_user_settings_stay() -> None:
    conf = render_conf("vm_memory_high_watermark.relative = 0.6\n# listeners.tcp.1 = a comment stays\n", OWNED)

    assert "vm_memory_high_watermark.relative = 0.6\n" in conf.text
    assert "# listeners.tcp.1 = a comment stays\n" in conf.text
    assert conf.replaced == ()


@pytest.mark.parametrize(
    "line",
    [
        "listeners.tcp.default = 5672",
        "  management.tcp.port=15672",
        "prometheus.tcp.port = 15692",
        "cluster_partition_handling = ignore",
        "cluster_partition_handling.pause_if_all_down.nodes.1 = rabbit@one",
        "cluster_formation.classic_config.nodes.1 = rabbit@one",
        "collect_statistics_interval = 5000",
    ],
)
def test_what_the_harness_owns_gives_way_and_is_reported(line: str) -> None:
    conf = render_conf(f"heartbeat = 30\n{line}\n", OWNED)

    assert conf.replaced == (line.strip(),)
    assert settings(conf.text) == {"heartbeat": "30", **OWNED}


def test_pause_if_all_down_names_the_brokers_by_their_erlang_names() -> None:
    chosen = PauseIfAllDown(nodes=("a1", "a3"), recover="ignore")
    topology = Topology(name="t", zones={"a": 3}, partition_handling="pause_if_all_down", pause_if_all_down=chosen)
    assert partition_handling_keys(topology, at_localhost) == {
        "cluster_partition_handling": "pause_if_all_down",
        "cluster_partition_handling.pause_if_all_down.recover": "ignore",
        "cluster_partition_handling.pause_if_all_down.nodes.1": "a1@localhost",
        "cluster_partition_handling.pause_if_all_down.nodes.2": "a3@localhost",
    }


@pytest.mark.parametrize(
    ("handling", "nodes", "told"),
    [
        ("pause_if_all_down", None, "pause_if_all_down"),
        ("autoheal", ("a1",), "pause_if_all_down"),
        ("pause_if_all_down", ("a1", "b7"), "b7"),
    ],
)
def test_pause_if_all_down_goes_with_nodes_that_exist(
    handling: str, nodes: tuple[str, ...] | None, told: str, message: Messages
) -> None:
    chosen = {"nodes": nodes} if nodes else None
    with message.of(ValidationError, hide=PYDANTIC) as refused:
        Topology.model_validate(
            {"name": "t", "zones": {"a": 3}, "partition_handling": handling, "pause_if_all_down": chosen}
        )
    assert told in str(refused.value)


def test_similar_names_are_not_ours() -> None:
    line = "listeners.tcpish = 1"

    assert render_conf(line, OWNED).replaced == ()


def test_listeners_are_on_loopback() -> None:
    assert OWNED["listeners.tcp.1"] == "127.0.0.1:1"
    assert OWNED["management.tcp.ip"] == "127.0.0.1"


def test_later_releases_form_by_themselves() -> None:
    assert formation_keys((4, 0), ("a1@localhost", "b1@localhost")) == {
        "cluster_formation.peer_discovery_backend": "classic_config",
        "cluster_formation.classic_config.nodes.1": "a1@localhost",
        "cluster_formation.classic_config.nodes.2": "b1@localhost",
    }


def test_unreadable_user_file_is_reported(tmp_path: Path, message: Messages) -> None:
    with message.of(ClusterError):
        read_user_file(tmp_path / "none.conf")
