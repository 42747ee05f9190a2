"""The model of a topology: zones, nodes and the configuration of their brokers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from rabbitmq_resilience.model.base import Spec, as_tuple
from rabbitmq_resilience.model.feature_flags import FeatureFlag, flag_needs
from rabbitmq_resilience.model.links import ANY_CLIENT, Link, Node, is_balancer
from rabbitmq_resilience.model.network_settings import Balancers, Count, Delay, Network
from rabbitmq_resilience.model.settings import SettingName, SettingValue, setting_needs

NODES_MIN = 1


NODES_MAX = 7


#: A short value, so that a test does not wait a minute until a broker notices a cut.
DEFAULT_NET_TICKTIME_S = 5


#: RabbitMQ's own default for ``net_ticktime``, chosen by ``--production-timing``.
PRODUCTION_NET_TICKTIME_S = 60


ZoneName = Annotated[str, StringConstraints(pattern=r"^[a-z]{1,8}$")]


PartitionHandling = Literal["pause_minority", "pause_if_all_down", "autoheal", "ignore"]


class PauseIfAllDown(Spec):
    """A node pauses while it reaches none of ``nodes``. ``recover`` is the handling of a split that left some of
    ``nodes`` on each side (``cluster_partition_handling.pause_if_all_down`` in rabbitmq.conf)."""

    nodes: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(as_tuple)]
    recover: Literal["autoheal", "ignore"] = "autoheal"


#: The setting for the total memory, for brokers that cannot see their limit. ``vm_memory_high_watermark`` is a part of
#: the total.
_TOTAL_MEMORY = "total_memory_available_override_value"


class BrokerSize(Spec):
    """The limits of each broker's container. ``cores``: CPU-seconds per second. ``memory_mb``: the memory above which
    the kernel kills the broker. RabbitMQ gets this memory as ``total_memory_available_override_value``, unless
    ``settings`` has another value. While the cluster forms, brokers have all cores."""

    cores: Annotated[float, Field(ge=0.01, le=1024)]
    memory_mb: Annotated[int, Field(ge=64, le=16_000_000)]

    @property
    def memory_bytes(self) -> int:
        return self.memory_mb * 2**20


def _counted(value: Any) -> Any:
    """Turn the short form ``balancers: 2`` into a mapping."""
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Topology(Spec):
    """Nodes, zones and broker configuration.

    ``zones`` maps each zone to its number of nodes. Node names follow from it (``{a: 2, b: 1}`` gives ``a1 a2 b1``).
    ``rabbitmq_conf``, ``advanced_config`` and ``definitions`` are files of your own broker configuration, with paths
    relative to the file that names them. The harness adds the settings that it must own (names, ports, cookie, data
    folders). ``settings`` are further lines of rabbitmq.conf, by name, which override those of the file.
    ``pause_if_all_down`` is needed with ``partition_handling: pause_if_all_down``, and refused otherwise.

    ``balancers``: the number of load balancers in front of the brokers, or a mapping with more options. No client
    connects to the nodes ``without_clients``, for example a node for statistics. ``ram_nodes`` keep the metadata of the
    cluster in memory only; RabbitMQ has them up to 4.1, deprecated since 2021. ``network``: the latency between and
    within zones. ``broker_size``: the limits of each broker, with containers only.
    ``enable_feature_flags`` are enabled once the cluster has formed, such as ``[khepri_db]`` on RabbitMQ 4.0 and 4.1.
    ``statistics_interval_s``: how often brokers update their statistics (``collect_statistics_interval``). The default
    is 1; RabbitMQ's own is 5. Alarms and queue depths are observed with this delay. ``client_tls``: the processes of an
    application speak TLS, with a certificate made for the run; it ends at the tap in front of the brokers, which need
    none.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    zones: Annotated[dict[ZoneName, Annotated[int, Field(ge=1, le=NODES_MAX)]], Field(min_length=1)]
    partition_handling: PartitionHandling = "pause_minority"
    pause_if_all_down: PauseIfAllDown | None = None
    net_ticktime_s: Annotated[int, Field(ge=1, le=3600)] = DEFAULT_NET_TICKTIME_S
    rabbitmq_conf: Path | None = None
    advanced_config: Path | None = None
    definitions: Path | None = None
    settings: dict[SettingName, SettingValue] = {}  # noqa: RUF012 - pydantic copies it
    balancers: Annotated[
        Balancers | None, BeforeValidator(_counted, json_schema_input_type=Count | Balancers | None)
    ] = None
    without_clients: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    ram_nodes: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    network: Network | None = None
    broker_size: BrokerSize | None = None
    enable_feature_flags: Annotated[tuple[FeatureFlag, ...], BeforeValidator(as_tuple)] = ()
    statistics_interval_s: Annotated[int, Field(ge=1, le=60)] | None = None
    client_tls: bool = False

    @model_validator(mode="after")
    def _size(self) -> Self:
        size = sum(self.zones.values())
        if not NODES_MIN <= size <= NODES_MAX:
            raise ValueError(f"a cluster has {NODES_MIN} to {NODES_MAX} nodes, the zones have {size}")
        return self

    @model_validator(mode="after")
    def _preferred(self) -> Self:
        if (self.partition_handling == "pause_if_all_down") != (self.pause_if_all_down is not None):
            raise ValueError(
                "partition_handling: pause_if_all_down needs pause_if_all_down: {nodes: [...]}, no other does"
            )
        return self

    @model_validator(mode="after")
    def _known(self) -> Self:
        preferred = self.pause_if_all_down.nodes if self.pause_if_all_down else ()
        named = {
            "pause_if_all_down.nodes": preferred,
            "without_clients": self.without_clients,
            "ram_nodes": self.ram_nodes,
        }
        for field, names in named.items():
            if unknown := sorted(set(names) - set(self.node_names)):
                raise ValueError(f"{field}: no node {', '.join(unknown)}; there are {', '.join(self.node_names)}")
        if self.network and self.network.balancers and not self.balancers:
            raise ValueError("network.balancers: there are no balancers; leave it out, or write balancers: 2")
        if not self.client_nodes:
            raise ValueError("without_clients names every node; leave one at least that takes clients")
        if set(self.ram_nodes) == set(self.node_names):
            raise ValueError("ram_nodes names every node; a cluster has at least one that keeps its metadata on disk")
        return self

    @property
    def setting_lines(self) -> Mapping[str, str]:
        """Return ``settings`` as lines of rabbitmq.conf: {name: value}."""
        # Brokers assume the memory of the whole machine, regardless of the limit of their container.
        sized = {} if self.broker_size is None else {_TOTAL_MEMORY: self.broker_size.memory_bytes}
        stated = {**sized, **self.settings}
        return {name: json.dumps(value) if isinstance(value, bool) else str(value) for name, value in stated.items()}

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(Node(f"{zone}{i}", zone) for zone, n in self.zones.items() for i in range(1, n + 1))

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    @property
    def balancer_names(self) -> tuple[str, ...]:
        return tuple(f"balancer:{i}" for i in range(self.balancers.count if self.balancers else 0))

    @property
    def client_nodes(self) -> tuple[str, ...]:
        """Return the nodes to which clients connect."""
        return tuple(name for name in self.node_names if name not in self.without_clients)

    @property
    def addresses(self) -> Mapping[str, tuple[str, ...]]:
        """Return {place that clients connect to: the nodes behind it}. A place is a balancer or a node."""
        nodes = self.client_nodes
        return dict.fromkeys(self.balancer_names, nodes) or {node: (node,) for node in nodes}

    @property
    def needs(self) -> frozenset[str]:
        """Return what the topology requires in addition to brokers, as ``nemesis.footprint.Footprint.needs``
        does."""
        needed = ["haproxy"] * bool(self.balancers) + ["RAM nodes"] * bool(self.ram_nodes)
        return frozenset(needed) | flag_needs(self.enable_feature_flags) | setting_needs(self.settings)

    @property
    def links(self) -> frozenset[Link]:
        """Return every directed link between two different nodes."""
        names = self.node_names
        return frozenset(Link(a, b) for a in names for b in names if a != b)

    def has_link(self, link: Link) -> bool:
        """Return whether this topology has ``link``. With balancers, clients have no links to brokers."""
        if link.client is None:
            return link in self.links
        if is_balancer(link.client):
            return {link.client, *link.nodes} <= {*self.balancer_names, *self.node_names} and bool(link.nodes)
        return link.answering in (self.balancer_names or self.node_names)

    def delay_of(self, link: Link) -> Delay | None:
        """Return the permanent delay of a link; None if it has none."""
        network = self.network or Network()
        if link.client is not None:
            return network.balancers if is_balancer(link.client) else network.clients
        zones = {self.zone_of(node) for node in link}
        return network.within_zones if len(zones) == 1 else network.between_zones

    @property
    def network_links(self) -> frozenset[Link]:
        """Return the links, in both directions, that have a permanent delay."""
        places = self.balancer_names or self.client_nodes
        ways = {Link(ANY_CLIENT, place) for place in places}
        ways |= {Link(balancer, node) for balancer in self.balancer_names for node in self.client_nodes}
        every = self.links | ways | {way.back for way in ways}
        return frozenset(link for link in every if self.delay_of(link) is not None)

    def zone_of(self, node: str) -> str:
        return next(n.zone for n in self.nodes if n.name == node)
