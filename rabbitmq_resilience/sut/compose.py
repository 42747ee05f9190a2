"""Render a topology as files for ``docker compose``, to start the cluster by hand.

The drivers use the same functions to configure brokers, Prometheus and Toxiproxy. Here, names and ports are the usual
ones: ``rabbit@a1`` on port 5672. No code of this project runs in the containers.

The files also work with docker-compose 1.29, which has no inline files. ``python -m
rabbitmq_resilience.sut.compose`` writes them.

Sources: Compose Specification; RabbitMQ, "Cluster Formation and Peer Discovery", "Monitoring"; docker-library/rabbitmq.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.links import Node
from rabbitmq_resilience.model.topology import BrokerSize, Topology
from rabbitmq_resilience.sut.broker.configuration import (
    enabled_plugins,
    harness_keys,
    listed_peers,
    read_user_file,
    render_conf,
)
from rabbitmq_resilience.sut.broker.environment import BOUND_OPEN_FILES, net_ticktime_argument
from rabbitmq_resilience.sut.broker.files import NodePorts
from rabbitmq_resilience.sut.drivers import DEFAULT_VERSION
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK
from rabbitmq_resilience.sut.network.toxiproxy import Call
from rabbitmq_resilience.sut.prometheus_server import scrape_config
from rabbitmq_resilience.tools import image_names as images

DEFAULT_TOPOLOGY = "three_nodes_three_zones"
COMPOSE_FILE = Path("docker-compose.cluster.yml")
#: The folder with the files that containers read, in the folder of the compose file.
MOUNTED = Path("topologies/compose")

ZONE_LABEL = "rabbitmq-resilience.zone"
TOPOLOGY_LABEL = "rabbitmq-resilience.topology"

#: Each container has its own address, so all brokers have the usual ports.
PORTS = NodePorts(amqp=5672, management=15672, distribution=25672, epmd=4369, prometheus=15692)
TOXIPROXY_PORT = 8474
PROMETHEUS_PORT = 9090
#: The port at which clients reach the first node through Toxiproxy. Each further node has the next port.
PROXIED_AMQP_PORT = 6672

_EVERYWHERE = "0.0.0.0"  # noqa: S104 - inside a container

#: The official images drop root's rights in their entry point. Only some versions take the cookie from the environment
#: (ERLANG_COOKIE); all versions take it from this file.
_START = f"""\
{BOUND_OPEN_FILES}
umask 077
printf %s "$$CLUSTER_COOKIE" > "$$HOME/.erlang.cookie"
exec $$(command -v docker-entrypoint.sh) rabbitmq-server
"""

#: A booting node counts as healthy, because it may wait for nodes that start only after it is healthy. This happens to
#: nodes that have been in the cluster before, and from 3.13 on (rabbitmq-server PR #9797) also to new nodes.
_HEALTHY = """\
rabbitmq-diagnostics -q check_running || rabbitmq-diagnostics -q is_booting | grep -q ' is booting$$'
"""

_HEADER = """\
# {what}
# Rendered from the topology {topology} by `python -m rabbitmq_resilience.sut.compose`; a test holds them equal.
"""


def rendered(topology: Topology) -> dict[Path, str]:
    """Return {relative path: text} of every file. Raise ``ValueError`` if the topology has files or programs that only
    the drivers support."""
    if topology.advanced_config or topology.definitions:
        raise ValueError(f"{topology.name} has an advanced.config or definitions, which only the drivers can load")
    if topology.needs:
        raise ValueError(f"{topology.name} has balancers or RAM nodes, which only the drivers can start")
    config = scrape_config({node: f"{node}:{PORTS.prometheus}" for node in topology.node_names})
    return {
        COMPOSE_FILE: _as_yaml(
            document(topology), "A cluster to start by hand; docs/drivers-and-images.md says how.", topology
        ),
        MOUNTED / "rabbitmq.conf": _header("The configuration of every broker.", topology) + rabbitmq_conf(topology),
        MOUNTED / "enabled_plugins": enabled_plugins(),
        MOUNTED / "prometheus.yml": _as_yaml(config, "What Prometheus scrapes.", topology),
        MOUNTED / "toxiproxy.json": json.dumps(proxies(topology), indent=2) + "\n",
    }


def document(topology: Topology) -> dict[str, Any]:
    """Return the compose file's content. Each broker starts when the one before is healthy, the other programs after
    all brokers."""
    nodes = topology.nodes
    healthy = {node.name: {"condition": "service_healthy"} for node in nodes}
    brokers = {node.name: _broker(topology, node, number) for number, node in enumerate(nodes)}
    for before, node in itertools.pairwise(nodes):
        brokers[node.name]["depends_on"] = {before.name: healthy[before.name]}
    toxiproxy = {
        "image": _image("TOXIPROXY_IMAGE", images.TOXIPROXY),
        "command": [f"-host={_EVERYWHERE}", f"-port={TOXIPROXY_PORT}", "-config=/etc/toxiproxy.json"],
        "labels": {TOPOLOGY_LABEL: topology.name},
        "ports": _published((port, port) for port in (TOXIPROXY_PORT, *_proxied_ports(topology).values())),
        "volumes": [_mount("toxiproxy.json", "/etc/toxiproxy.json")],
        "depends_on": healthy,
    }
    prometheus = {
        "image": _image("PROMETHEUS_IMAGE", images.PROMETHEUS),
        "labels": {TOPOLOGY_LABEL: topology.name},
        "ports": _published([(PROMETHEUS_PORT, PROMETHEUS_PORT)]),
        "volumes": [_mount("prometheus.yml", "/etc/prometheus/prometheus.yml")],
        "healthcheck": _check(
            ["CMD", "promtool", "query", "instant", f"http://localhost:{PROMETHEUS_PORT}", "vector(1)"], start_s=60
        ),
        "depends_on": healthy,
    }
    return {
        "services": {**brokers, "toxiproxy": toxiproxy, "prometheus": prometheus},
        "volumes": {node.name: {"labels": {TOPOLOGY_LABEL: topology.name}} for node in nodes},
    }


def rabbitmq_conf(topology: Topology) -> str:
    """Return the text of rabbitmq.conf, which is the same for every node."""
    formation = listed_peers(tuple(map(broker_name, topology.node_names)))
    owned = harness_keys(topology, PORTS, formation, broker_name, listen=_EVERYWHERE)
    return render_conf(
        read_user_file(topology.rabbitmq_conf), {**topology.setting_lines, **owned, "log.console": "true"}
    ).text


def proxies(topology: Topology) -> list[Mapping[str, Any]]:
    """Return Toxiproxy's configuration: one proxy for the clients of each node, with the node's name."""
    made = (
        Call.create(node, listen=f"{_EVERYWHERE}:{port}", upstream=f"{node}:{PORTS.amqp}")
        for node, port in _proxied_ports(topology).items()
    )
    return [call.body for call in made if call.body is not None]


def broker_name(node: str) -> str:
    return f"rabbit@{node}"


def _broker(topology: Topology, node: Node, number: int) -> dict[str, Any]:
    return {
        "image": _image("BROKER_IMAGE", images.broker(DEFAULT_VERSION)),
        "hostname": node.name,
        "command": ["sh", "-c", _START],
        "environment": {
            "CLUSTER_COOKIE": "${ERLANG_COOKIE:-by-hand}",
            "RABBITMQ_NODENAME": broker_name(node.name),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": net_ticktime_argument(net_ticktime_s=topology.net_ticktime_s),
        },
        **_held_to(topology.broker_size),
        "labels": {ZONE_LABEL: node.zone, TOPOLOGY_LABEL: topology.name},
        "ports": _published((port + number, port) for port in PORTS.published),
        "volumes": [
            _mount("rabbitmq.conf", "/etc/rabbitmq/rabbitmq.conf"),
            _mount("enabled_plugins", "/etc/rabbitmq/enabled_plugins"),
            f"{node.name}:/var/lib/rabbitmq",
        ],
        # Up to 3.8.17 a new node waits for a random time of up to a minute before it looks for others.
        "healthcheck": _check(["CMD-SHELL", _HEALTHY], start_s=300),
        "stop_grace_period": "60s",
    }


def _held_to(size: BrokerSize | None) -> Mapping[str, Any]:
    if size is None:
        return {}
    return {"cpus": size.cores, "mem_limit": size.memory_bytes, "memswap_limit": size.memory_bytes}


def _check(command: list[str], *, start_s: int) -> dict[str, Any]:
    """Return a health check that runs every ten seconds. It is that rare because each check starts an Erlang VM."""
    return {"test": command, "interval": "10s", "timeout": "60s", "retries": 3, "start_period": f"{start_s}s"}


def _proxied_ports(topology: Topology) -> dict[str, int]:
    return {node: PROXIED_AMQP_PORT + number for number, node in enumerate(topology.node_names)}


def _image(variable: str, image: images.Image) -> str:
    return f"${{{variable}:-{image.official}}}"


def _published(ports: Iterable[tuple[int, int]]) -> list[str]:
    """Return port mappings from pairs of a port on this machine and a container's port."""
    return [f"${{PUBLISH_ON:-{LOOPBACK}}}:{here}:{inside}" for here, inside in ports]


def _mount(file: str, target: str) -> str:
    return f"./{MOUNTED / file}:{target}:ro"


class _Plain(yaml.SafeDumper):
    """A YAML dumper that writes no aliases, and writes texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _text)


def _as_yaml(content: Any, what: str, topology: Topology) -> str:
    return _header(what, topology) + yaml.dump(content, Dumper=_Plain, sort_keys=False, width=120)


def _header(what: str, topology: Topology) -> str:
    return _HEADER.format(what=what, topology=topology.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("topology", nargs="?", default=DEFAULT_TOPOLOGY, choices=topology_catalogue.names())
    parser.add_argument("--into", type=Path, default=Path(), help="the folder that the files go to (this one)")
    asked = parser.parse_args()
    for path, text in rendered(topology_catalogue.load(asked.topology)).items():
        file = asked.into / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(file)


if __name__ == "__main__":
    main()
