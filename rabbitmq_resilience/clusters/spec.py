"""What a cluster looks like, before anything runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from rabbitmq_resilience.clusters.feature_flags import FeatureFlag, flag_needs
from rabbitmq_resilience.clusters.settings import SettingName, SettingValue, setting_needs

NODES_MIN = 1
NODES_MAX = 7
BALANCERS_MAX = 4

#: Short, so that a test need not wait a minute for a broker to notice.
DEFAULT_NET_TICKTIME_S = 5
#: RabbitMQ's own default for ``net_ticktime``, chosen by ``--production-timing``.
PRODUCTION_NET_TICKTIME_S = 60

ZoneName = Annotated[str, StringConstraints(pattern=r"^[a-z]{1,8}$")]
PartitionHandling = Literal["pause_minority", "pause_if_all_down", "autoheal", "ignore"]


class Spec(BaseModel):
    """Base of every value that a fault file can state: frozen, and no unknown field is accepted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Node(NamedTuple):
    """One broker: ``name`` is its zone's name and a number (``a1``), unique in its topology."""

    name: str
    zone: str


#: Whoever has no links of his own: the end of the links that all other clients share.
ANY_CLIENT = "client:all"


def is_client(name: str) -> bool:
    """Whether an end of a link speaks AMQP to brokers and is none of them: a client, by role and number from 0
    (``publisher:0``), or a load balancer (``balancer:0``)."""
    return ":" in name


def is_balancer(name: str) -> bool:
    return name.startswith("balancer:")


class Link(NamedTuple):
    """One *directed* path between two brokers, by node name, between a client and a broker, between a client and a
    load balancer, or between a balancer and a broker."""

    source: str
    target: str

    @property
    def back(self) -> Link:
        """The other direction."""
        return Link(self.target, self.source)

    @property
    def client(self) -> str | None:
        """The end that opens the connections where not both do: a client, or a balancer before a broker."""
        return next((end for end in sorted(self, key=is_balancer) if is_client(end)), None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The ends that are brokers."""
        return tuple(end for end in self if not is_client(end))

    @property
    def answering(self) -> str:
        """The end that answers a probe over the link; empty where there is no such link, as between two clients."""
        balancers = [end for end in self if is_balancer(end)]
        return (self.nodes or (balancers if len(balancers) == 1 else [""]))[-1]

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


def balancers_of(links: Iterable[Link]) -> frozenset[str]:
    """The balancers at the ends of links."""
    return frozenset(end for link in links for end in link if is_balancer(end))


def _as_tuple(value: Any) -> Any:
    """A topology is a plain mapping when it is validated, and a strict tuple takes no list."""
    return tuple(value) if isinstance(value, list) else value


class PauseIfAllDown(Spec):
    """A node pauses while it reaches none of ``nodes``; ``recover`` says what follows a split that left some of them
    on each side (``cluster_partition_handling.pause_if_all_down`` in rabbitmq.conf)."""

    nodes: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_as_tuple)]
    recover: Literal["autoheal", "ignore"] = "autoheal"


#: The memory of which a broker may use a part (``vm_memory_high_watermark``), where it cannot see how much that is.
_TOTAL_MEMORY = "total_memory_available_override_value"

Count = Annotated[int, Field(ge=1, le=BALANCERS_MAX)]


class HealthCheck(Spec):
    """A balancer opens a connection to each broker every ``inter_s``. After ``fall`` that failed it sends nobody there
    any more, after ``rise`` that came about it does so again (HAProxy: ``check inter rise fall``)."""

    inter_s: Annotated[float, Field(ge=0.1, le=3600)] = 2
    rise: Annotated[int, Field(ge=1, le=100)] = 2
    fall: Annotated[int, Field(ge=1, le=100)] = 3


class Balancers(Spec):
    """Load balancers (HAProxy) before the brokers: ``count`` of them, called ``balancer:0``, ``balancer:1``, ...
    Clients connect to them alone, and begin at different ones. ``algorithm`` (``balance``) chooses a broker for each
    connection. ``shutdown_sessions``: connections to a broker that failed its checks are closed at once
    (``on-marked-down shutdown-sessions``); otherwise they stay. ``idle_timeout_s``: how long a connection may carry
    nothing (``timeout client`` and ``timeout server``)."""

    count: Count = 1
    algorithm: Literal["roundrobin", "leastconn", "source", "random"] = "roundrobin"
    check: HealthCheck = HealthCheck()
    shutdown_sessions: bool = True
    idle_timeout_s: Annotated[float, Field(ge=1, le=86_400)] = 10_800


class Delay(Spec):
    """What crosses a link arrives ``latency_ms`` later in each direction, give or take ``jitter_ms``: whole
    milliseconds, as Toxiproxy counts them. What was sent first arrives first."""

    latency_ms: Annotated[int, Field(ge=1, le=10_000)]
    jitter_ms: Annotated[int, Field(ge=0, le=10_000)] = 0

    @model_validator(mode="after")
    def _no_less_than_none(self) -> Self:
        if self.jitter_ms >= self.latency_ms:
            raise ValueError(f"jitter_ms ({self.jitter_ms}) must be less than latency_ms ({self.latency_ms})")
        return self

    @property
    def round_trip_s(self) -> float:
        """At most."""
        return 2 * (self.latency_ms + self.jitter_ms) / 1000


#: How far apart, one way and with jitter, may be who connects to each other. Brokers have 7 s for it (Erlang's
#: net_setuptime), in which five messages cross (3.10.8: at 1200 ms they connect, at 1600 never); our clients have 5 s,
#: for six.
BROKERS_APART_MS_MAX, CLIENTS_APART_MS_MAX = 1300, 800


class Network(Spec):
    """How far apart things are as long as a run lasts: brokers of different zones, brokers of one zone, clients and
    what they connect to, balancers and brokers. What is not stated is as near as the machine has it. Brokers are
    started and join each other before that begins. Round trips are measured before the load and all the time, also
    where nothing is stated (``network: {}``). With jitter, brokers are at most 1300 ms apart, and clients 800 ms from
    brokers, through balancers too: beyond that nobody could connect in time."""

    between_zones: Delay | None = None
    within_zones: Delay | None = None
    clients: Delay | None = None
    balancers: Delay | None = None

    @model_validator(mode="after")
    def _can_connect(self) -> Self:
        ways = {
            "between_zones": ([self.between_zones], BROKERS_APART_MS_MAX),
            "within_zones": ([self.within_zones], BROKERS_APART_MS_MAX),
            "clients and balancers": ([self.clients, self.balancers], CLIENTS_APART_MS_MAX),
        }
        for field, (delays, most_ms) in ways.items():
            apart_ms = sum(delay.latency_ms + delay.jitter_ms for delay in delays if delay is not None)
            if apart_ms > most_ms:
                raise ValueError(
                    f"{field}: with jitter {apart_ms} ms, and nobody could connect over more than {most_ms}"
                )
        return self


class BrokerSize(Spec):
    """What each broker's container may use: so many CPU-seconds a second, and so much memory, above which the kernel
    kills it. RabbitMQ is told how much memory there is (``total_memory_available_override_value``), unless ``settings``
    tell it otherwise. While the cluster forms, brokers have all cores."""

    cores: Annotated[float, Field(ge=0.01, le=1024)]
    memory_mb: Annotated[int, Field(ge=64, le=16_000_000)]

    @property
    def memory_bytes(self) -> int:
        return self.memory_mb * 2**20


def _counted(value: Any) -> Any:
    """``balancers: 2`` is short for a mapping."""
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Topology(Spec):
    """Nodes, zones and broker configuration.

    ``zones`` maps each zone to its number of nodes; node names follow from it (``{a: 2, b: 1}``
    gives ``a1 a2 b1``). ``rabbitmq_conf``, ``advanced_config`` and ``definitions`` are files of your own broker
    configuration, with paths as seen from the file that names them; what the harness must own (names, ports,
    cookie, data folders) is added to them. ``settings`` are further lines of rabbitmq.conf, by name, below
    which those of the file give way. ``pause_if_all_down`` goes with the
    ``partition_handling`` of that name, and only with it.

    ``balancers``: so many load balancers stand before the brokers, or a mapping that says more of them. To the nodes
    ``without_clients`` no client is sent, as people keep a node for statistics. ``ram_nodes`` keep the metadata of the
    cluster in memory only; they are there up to RabbitMQ 4.1, and deprecated since 2021. ``network``: the latency
    between and within zones. ``broker_size``: what each broker may use of its machine, with containers only.
    ``enable_feature_flags`` are enabled once the cluster has formed, such as ``[khepri_db]`` on RabbitMQ 4.0 and 4.1.
    ``statistics_interval_s``: how often brokers renew their numbers (``collect_statistics_interval``); 1 by default,
    where RabbitMQ has 5. Alarms and depths are seen as much later.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    zones: Annotated[dict[ZoneName, Annotated[int, Field(ge=1, le=NODES_MAX)]], Field(min_length=1)]
    partition_handling: PartitionHandling = "pause_minority"
    pause_if_all_down: PauseIfAllDown | None = None
    net_ticktime_s: Annotated[int, Field(ge=1, le=3600)] = DEFAULT_NET_TICKTIME_S
    rabbitmq_conf: Path | None = None
    advanced_config: Path | None = None
    definitions: Path | None = None
    settings: dict[SettingName, SettingValue] = {}
    balancers: Annotated[
        Balancers | None, BeforeValidator(_counted, json_schema_input_type=Count | Balancers | None)
    ] = None
    without_clients: Annotated[tuple[str, ...], BeforeValidator(_as_tuple)] = ()
    ram_nodes: Annotated[tuple[str, ...], BeforeValidator(_as_tuple)] = ()
    network: Network | None = None
    broker_size: BrokerSize | None = None
    enable_feature_flags: Annotated[tuple[FeatureFlag, ...], BeforeValidator(_as_tuple)] = ()
    statistics_interval_s: Annotated[int, Field(ge=1, le=60)] | None = None

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
        """``settings`` as rabbitmq.conf has them."""
        # Brokers take the memory of the whole machine for theirs, whatever holds their container.
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
        """The nodes to which clients are sent."""
        return tuple(name for name in self.node_names if name not in self.without_clients)

    @property
    def addresses(self) -> Mapping[str, tuple[str, ...]]:
        """What clients connect to, and the nodes that are behind it."""
        nodes = self.client_nodes
        return dict.fromkeys(self.balancer_names, nodes) or {node: (node,) for node in nodes}

    @property
    def needs(self) -> frozenset[str]:
        """What must be there for it beside brokers, as in ``faults.step.Step.needs``."""
        needed = ["haproxy"] * bool(self.balancers) + ["RAM nodes"] * bool(self.ram_nodes)
        return frozenset(needed) | flag_needs(self.enable_feature_flags) | setting_needs(self.settings)

    @property
    def links(self) -> frozenset[Link]:
        """Every directed link between two different nodes."""
        names = self.node_names
        return frozenset(Link(a, b) for a in names for b in names if a != b)

    def has_link(self, link: Link) -> bool:
        """Whether something may cross it: clients of a cluster with balancers have no links to its brokers."""
        if link.client is None:
            return link in self.links
        if is_balancer(link.client):
            return {link.client, *link.nodes} <= {*self.balancer_names, *self.node_names} and bool(link.nodes)
        return link.answering in (self.balancer_names or self.node_names)

    def delay_of(self, link: Link) -> Delay | None:
        """What its network does to a link all the time."""
        network = self.network or Network()
        if link.client is not None:
            return network.balancers if is_balancer(link.client) else network.clients
        zones = {self.zone_of(node) for node in link}
        return network.within_zones if len(zones) == 1 else network.between_zones

    @property
    def network_links(self) -> frozenset[Link]:
        """The links, in both directions, that its network makes slow."""
        places = self.balancer_names or self.client_nodes
        ways = {Link(ANY_CLIENT, place) for place in places}
        ways |= {Link(balancer, node) for balancer in self.balancer_names for node in self.client_nodes}
        every = self.links | ways | {way.back for way in ways}
        return frozenset(link for link in every if self.delay_of(link) is not None)

    def zone_of(self, node: str) -> str:
        return next(n.zone for n in self.nodes if n.name == node)
