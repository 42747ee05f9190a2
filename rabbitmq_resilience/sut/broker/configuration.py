"""Render the configuration of one broker: the user's lines, overridden by the keys that the harness must own."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.files import NodePorts
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK

_KEY = re.compile(r"^\s*([A-Za-z0-9_.\-$]+)\s*=")

#: Families of keys that the harness owns completely. For example, a user's listener would collide between nodes.
_OWNED_FAMILIES = (
    "listeners.tcp",
    "management.tcp",
    "management.listener",
    "prometheus",
    "cluster_formation",
    "loopback_users",
    "cluster_partition_handling",
    "log.file",
    "collect_statistics_interval",
)

#: The plugins that every broker runs.
PLUGINS = ("rabbitmq_management", "rabbitmq_prometheus")


def enabled_plugins(added: Collection[str] = ()) -> str:
    """Return a broker's file of enabled plugins, an Erlang term: the usual plugins and the ``added`` ones."""
    return f"[{', '.join([*PLUGINS, *sorted(added)])}].\n"


@dataclass(frozen=True)
class RenderedConf:
    """The ``text`` of a rabbitmq.conf, and the user's lines that the harness replaced in it."""

    text: str
    replaced: tuple[str, ...]


def harness_keys(
    topology: Topology,
    ports: NodePorts,
    formation: Mapping[str, str],
    broker_name: Callable[[str], str],
    *,
    listen: str = LOOPBACK,
) -> dict[str, str]:
    """Return the keys that the harness sets in every rabbitmq.conf; they override the user's. ``broker_name`` returns a
    node's Erlang name. ``listen`` is the address of its listeners."""
    from_elsewhere = {} if listen == LOOPBACK else {"loopback_users": "none"}
    return {
        "listeners.tcp.1": f"{listen}:{ports.amqp}",
        "management.tcp.ip": listen,
        "management.tcp.port": str(ports.management),
        **from_elsewhere,
        "prometheus.tcp.ip": listen,
        "prometheus.tcp.port": str(ports.prometheus),
        **partition_handling_keys(topology, broker_name),
        "collect_statistics_interval": str(1000 * (topology.statistics_interval_s or 1)),
        "log.file.level": "info",
        **formation,
    }


def partition_handling_keys(topology: Topology, broker_name: Callable[[str], str]) -> dict[str, str]:
    """Return the keys for the topology's partition handling. Source: RabbitMQ, "Clustering and Network Partitions"."""
    mode, choice = "cluster_partition_handling", topology.pause_if_all_down
    keys: dict[str, str] = {mode: topology.partition_handling}
    if choice is not None:
        keys[f"{mode}.pause_if_all_down.recover"] = choice.recover
        for i, node in enumerate(choice.nodes, 1):
            keys[f"{mode}.pause_if_all_down.nodes.{i}"] = broker_name(node)
    return keys


def render_conf(user_text: str, owned: Mapping[str, str]) -> RenderedConf:
    """Return the user's rabbitmq.conf without the keys that the harness owns, followed by the harness's keys."""
    kept: list[str] = []
    replaced: list[str] = []
    for line in user_text.splitlines():
        key = _KEY.match(line)
        (replaced if key and _is_owned(key[1], owned) else kept).append(line)
    lines = [*kept, "", "# Owned by the test harness.", *(f"{key} = {value}" for key, value in owned.items())]
    return RenderedConf("\n".join(lines).lstrip("\n") + "\n", tuple(line.strip() for line in replaced))


def _is_owned(key: str, owned: Mapping[str, str]) -> bool:
    return key in owned or is_in_owned_family(key)


def is_in_owned_family(key: str) -> bool:
    return any(key == family or key.startswith(f"{family}.") for family in _OWNED_FAMILIES)


def joins_in_order(release: tuple[int, int]) -> bool:
    """Return whether the harness lets nodes of this release join in turn. Later releases order this themselves."""
    return release < (3, 13)


def formation_keys(release: tuple[int, int], broker_names: tuple[str, ...]) -> dict[str, str]:
    """Return the keys by which the brokers find each other.

    Up to 3.12 this project's own peer discovery lets nodes join in turn (see resilience_formation.erl). From 3.13 on
    RabbitMQ itself chooses one node that all others join, without a lock.
    """
    if joins_in_order(release):
        return {"cluster_formation.peer_discovery_backend": "resilience_formation"}
    return listed_peers(broker_names)


def listed_peers(broker_names: tuple[str, ...]) -> dict[str, str]:
    """Return the keys for RabbitMQ's own peer discovery from a list in its configuration."""
    listed = {f"cluster_formation.classic_config.nodes.{i}": name for i, name in enumerate(broker_names, 1)}
    return {"cluster_formation.peer_discovery_backend": "classic_config", **listed}


def read_user_file(path: Path | None) -> str:
    """Return the text of a file that the topology names; empty without a file. Raise ``ClusterError`` if the file
    cannot be read."""
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"the topology names {path}, which cannot be read: {error}") from error
