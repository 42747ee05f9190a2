"""The cluster to start by hand is the one that the drivers run: committed files and drivers say the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.links import Node
from rabbitmq_resilience.model.topology import PauseIfAllDown, Topology
from rabbitmq_resilience.sut import compose
from rabbitmq_resilience.sut.broker_host import Net
from rabbitmq_resilience.sut.drivers import DEFAULT_VERSION
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK, Claim
from rabbitmq_resilience.sut.port_layout import PortLayout
from rabbitmq_resilience.tools import image_names as images
from rabbitmq_resilience.tools.distributions import BrokerHome
from tests.messages import Messages

ROOT = Path(__file__).resolve().parent.parent.parent
TOPOLOGY = topology_catalogue.load(compose.DEFAULT_TOPOLOGY)
DOCUMENT: dict[str, Any] = yaml.safe_load((ROOT / compose.COMPOSE_FILE).read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = DOCUMENT["services"]
BROKERS = {name: service for name, service in SERVICES.items() if compose.ZONE_LABEL in service["labels"]}

#: What depends on where a broker runs, not on its topology: compared one by one.
PLACES = re.compile(
    r"listeners\.tcp\.1|(management|prometheus)\.tcp\.port|cluster_formation\.classic_config\.nodes\.\d"
)


@pytest.fixture
def layout(tmp_path: Path) -> PortLayout:
    """What the docker driver writes and sets for a cluster of this topology."""
    ebin = tmp_path / "compiled"
    ebin.mkdir()
    folder = tmp_path / "20000"
    folder.mkdir()
    home = BrokerHome(Path("/opt/rabbitmq"), Path("/opt/erlang/bin"), "4.0.5")  # a release that finds its peers itself
    made = PortLayout(TOPOLOGY, (), home, Claim(folder, 20_000, ()), Net("0.0.0.0", lambda name: name))  # noqa: S104
    made.write(ebin)
    return made


def settings(text: str) -> dict[str, str]:
    """What a rabbitmq.conf sets."""
    lines = (line.partition(" = ") for line in text.splitlines() if line and not line.startswith("#"))
    return {key: value for key, _, value in lines}


def mounted(service: Mapping[str, Any], target: str) -> Path:
    """The committed file that a container has as ``target``."""
    (source,) = (v.split(":")[0] for v in service["volumes"] if v.split(":")[1] == target)
    return ROOT / str(source)


def net_ticktime_s(environ: Mapping[str, str]) -> int:
    """As every Erlang machine is told that is started with ``environ``."""
    told = re.findall(r"net_ticktime (\d+)", " ".join(environ.values()))
    assert len(told) == 1
    return int(told[0])


def test_the_committed_files_are_rendered_from_the_topology() -> None:
    rendered = compose.rendered(TOPOLOGY)
    there = {file.relative_to(ROOT) for file in (ROOT / compose.MOUNTED).iterdir()} | {compose.COMPOSE_FILE}

    assert there == set(rendered), "run python -m rabbitmq_resilience.sut.compose"
    for path, text in rendered.items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, (
            f"{path}: run python -m rabbitmq_resilience.sut.compose"
        )


def test_the_brokers_are_the_nodes_of_the_topology_in_their_zones(layout: PortLayout) -> None:
    told = tuple(Node(name, service["labels"][compose.ZONE_LABEL]) for name, service in BROKERS.items())

    assert told == TOPOLOGY.nodes
    assert list(BROKERS) == list(layout.files)
    for name, service in BROKERS.items():
        assert service["hostname"] == name
        assert service["environment"]["RABBITMQ_NODENAME"] == f"rabbit@{name}"


def test_brokers_are_configured_as_by_the_driver(layout: PortLayout) -> None:
    for node, service in BROKERS.items():
        by_hand = settings(mounted(service, "/etc/rabbitmq/rabbitmq.conf").read_text(encoding="utf-8"))
        driven = settings(layout.files[node].conf.read_text(encoding="utf-8"))

        assert by_hand["cluster_partition_handling"] == TOPOLOGY.partition_handling
        assert by_hand.pop("log.console") == "true"
        assert set(by_hand) == set(driven)
        assert {key for key in by_hand if by_hand[key] != driven[key]} == set(filter(PLACES.fullmatch, by_hand))
        peers = [(by_hand[key], driven[key]) for key in by_hand if ".classic_config.nodes." in key]
        assert peers == [(f"rabbit@{name}", f"{name}@localhost") for name in TOPOLOGY.node_names]


def test_brokers_notice_a_silent_peer_when_those_of_the_driver_do(layout: PortLayout) -> None:
    for node, service in BROKERS.items():
        assert net_ticktime_s(service["environment"]) == net_ticktime_s(layout.environ(node)) == TOPOLOGY.net_ticktime_s


def test_brokers_run_the_same_plugins(layout: PortLayout) -> None:
    for node, service in BROKERS.items():
        by_hand = mounted(service, "/etc/rabbitmq/enabled_plugins").read_text(encoding="utf-8")
        assert by_hand == layout.files[node].plugins.read_text(encoding="utf-8")
        assert "rabbitmq_management" in by_hand


def test_the_ports_of_the_same_listeners_are_published(layout: PortLayout) -> None:
    for number, (node, service) in enumerate(BROKERS.items()):
        conf = settings(mounted(service, "/etc/rabbitmq/rabbitmq.conf").read_text(encoding="utf-8"))
        amqp = conf["listeners.tcp.1"].rpartition(":")[2]
        listeners = [amqp, conf["management.tcp.port"], conf["prometheus.tcp.port"]]
        ports = layout.ports[node]

        assert [port.rpartition(":")[2] for port in service["ports"]] == listeners
        assert ports.published == (ports.amqp, ports.management, ports.prometheus)
        assert [int(port.split(":")[-2]) for port in service["ports"]] == [int(port) + number for port in listeners]


def test_every_port_is_published_once_and_on_loopback_unless_asked() -> None:
    published = [port for service in SERVICES.values() for port in service["ports"]]
    here = [port.rpartition(":")[0] for port in published]

    assert len(set(here)) == len(here)
    assert all(port.startswith(f"${{PUBLISH_ON:-{LOOPBACK}}}:") for port in published)


def test_each_broker_waits_for_the_one_before_and_the_rest_for_all() -> None:
    healthy = {"condition": "service_healthy"}
    a1, b1, c1 = BROKERS.values()

    assert "depends_on" not in a1
    assert (b1["depends_on"], c1["depends_on"]) == ({"a1": healthy}, {"b1": healthy})
    for name in ("toxiproxy", "prometheus"):
        assert SERVICES[name]["depends_on"] == dict.fromkeys(BROKERS, healthy)


def test_prometheus_scrapes_every_node_by_its_name() -> None:
    config = yaml.safe_load(mounted(SERVICES["prometheus"], "/etc/prometheus/prometheus.yml").read_text("utf-8"))
    for job in config["scrape_configs"]:
        targets = {t["labels"]["node"]: t["targets"] for t in job["static_configs"]}
        assert targets == {node: [f"{node}:15692"] for node in TOPOLOGY.node_names}
        assert "metric_relabel_configs" not in job  # who looks by hand may look for anything


def test_toxiproxy_has_one_published_proxy_for_the_clients_of_each_node() -> None:
    made = json.loads(mounted(SERVICES["toxiproxy"], "/etc/toxiproxy.json").read_text("utf-8"))
    inside = [int(port.rpartition(":")[2]) for port in SERVICES["toxiproxy"]["ports"]]

    assert [(proxy["name"], proxy["upstream"]) for proxy in made] == [(n, f"{n}:5672") for n in TOPOLOGY.node_names]
    assert inside == [8474, *(int(proxy["listen"].rpartition(":")[2]) for proxy in made)]


def test_images_are_the_official_ones_unless_others_are_asked_for() -> None:
    told = {service["image"] for service in SERVICES.values()}
    assert told == {
        f"${{BROKER_IMAGE:-{images.broker(DEFAULT_VERSION).official}}}",
        f"${{TOXIPROXY_IMAGE:-{images.TOXIPROXY.official}}}",
        f"${{PROMETHEUS_IMAGE:-{images.PROMETHEUS.official}}}",
    }


def test_any_topology_is_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["compose", "seven_nodes_three_zones", "--into", str(tmp_path)])
    compose.main()
    seven = topology_catalogue.load("seven_nodes_three_zones")

    written = yaml.safe_load((tmp_path / compose.COMPOSE_FILE).read_text("utf-8"))
    assert list(written["services"]) == [*seven.node_names, "toxiproxy", "prometheus"]
    for path, text in compose.rendered(seven).items():
        assert (tmp_path / path).read_text("utf-8") == text


def test_partition_handling_and_the_users_own_settings_are_carried_over(tmp_path: Path) -> None:
    users = tmp_path / "rabbitmq.conf"
    users.write_text("vm_memory_high_watermark.relative = 0.6\nlisteners.tcp.default = 1\n")
    preferred = PauseIfAllDown(nodes=("a1",))
    zones = {"a": 1, "b": 2}
    mode: Any = "pause_if_all_down"
    topology = Topology(
        name="t", zones=zones, partition_handling=mode, pause_if_all_down=preferred, rabbitmq_conf=users
    )
    conf = settings(compose.rabbitmq_conf(topology))

    assert conf["vm_memory_high_watermark.relative"] == "0.6"
    assert "listeners.tcp.default" not in conf
    assert conf["cluster_partition_handling.pause_if_all_down.nodes.1"] == "rabbit@a1"


@pytest.mark.parametrize("field", ["advanced_config", "definitions"])
def test_a_topology_with_files_that_only_drivers_load_is_refused(field: str, message: Messages) -> None:
    topology = TOPOLOGY.model_copy(update={field: Path("some.file")})
    with message.of(ValueError):
        compose.rendered(topology)
