"""Define the protocol that every cluster driver implements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from rabbitmq_resilience.model.access import Access, Endpoint
from rabbitmq_resilience.model.alert_rules import RuleFile
from rabbitmq_resilience.model.broker_changes import BrokerChange
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.handshake import Probe
from rabbitmq_resilience.sut.broker.management import ManagementApi
from rabbitmq_resilience.sut.preload.preloaded_disk import PreloadedDisk
from rabbitmq_resilience.sut.round_trip_probes import RoundTrips

ProcessState = Literal["running", "suspended", "gone"]
NodeState = Literal["up", "paused", "suspended", "down"]


class Links(Protocol):
    """The proxied links of one cluster.

    Two brokers share one connection, opened by either, so what acts on the directed link a->b acts on the upstream
    side of the proxy a->b *and* the downstream side of the proxy b->a. A client's link to a node has one proxy for
    both directions. Each call acts on all given links at once. It skips links that carry no proxy; the proof then
    shows that the fault has no effect there.
    """

    @property
    def proxied(self) -> frozenset[Link]:
        """Return the directed links that a proxy carries: always both directions of a pair."""
        ...

    @property
    def remade(self) -> Sequence[str]:
        """Return the names of the proxies that hung and were created again, once for each time. Creating a proxy again
        ends its connections."""
        ...

    def cut(self, links: Collection[Link]) -> None:
        """Hold back all bytes on the links until ``restore``. No connection is closed."""
        ...

    def restore(self, links: Collection[Link]) -> None:
        """Undo ``cut``. The held bytes arrive on connections that both ends have kept open."""
        ...

    def refuse(self, links: Collection[Link]) -> None:
        """End all connections on the links at once, whichever end opened them, and refuse new ones."""
        ...

    def accept(self, links: Collection[Link]) -> None:
        """Undo ``refuse``."""
        ...

    def refuses(self, link: Link) -> bool:
        """Return whether a connection over ``link`` is refused now, whichever end opens it."""
        ...

    def attested(self, links: Collection[Link]) -> Mapping[Link, bool] | None:
        """Return {link: whether it is cut now} for the links between brokers, if the command that cuts them can check
        this. Return None if only probes can."""
        ...

    def connection(self, link: Link) -> str | None:
        """Return the name of the connection from the source to the target of a link between brokers, at most 0.2 s old.
        Return None while there is no connection. Each connection of a broker has a different name."""
        ...

    def delay(self, links: Collection[Link], *, latency_ms: int, jitter_ms: int) -> None: ...

    def undelay(self, links: Collection[Link]) -> None: ...

    def held_bytes(self, link: Link) -> int | None:
        """Return how many bytes the proxy of a link between brokers has received and not yet delivered; None if the
        link carries no proxy."""
        ...

    def probe_ms(self, link: Link, *, timeout_s: float, direct: bool = False) -> float | None:
        """Return the round trip of a probe over the directed link, in ms. The answer crosses the reverse link.
        ``direct``: bypass the proxy. Return None if there is no answer or no proxy."""
        ...

    def server_answers(self) -> bool:
        """Return whether the proxy server answers a call now, that is, whether the busy machine gives it CPU time."""
        ...

    def probe(self, link: Link, *, direct: bool = False) -> Probe | None:
        """Open a connection for a probe over ``link``. ``direct``: connect to the same listener, but bypass the proxy.
        Return None if the connection is not accepted or the link has no proxy."""
        ...


class LoadBalancers(Protocol):
    """The load balancers of one cluster, by name (``balancer:0``). ``Cluster`` describes the methods on processes."""

    def process(self, name: str) -> ProcessState: ...

    def life(self, name: str) -> str | None: ...

    def exit_status(self, name: str) -> int | None: ...

    def kill(self, name: str) -> None: ...

    def start(self, name: str) -> None: ...

    def pause(self, name: str) -> None: ...

    def resume(self, name: str) -> None: ...

    def refuses(self, name: str) -> bool:
        """Return whether the balancer refuses a connection now."""

    def answers(self, name: str, *, timeout_s: float) -> bool:
        """Return whether a broker answers the AMQP protocol header through the balancer."""


@dataclass(frozen=True)
class PrometheusRequest:
    """What a Prometheus server keeps and evaluates: the named ``series`` (None: all), and the alerting ``rules``."""

    series: Collection[str] | None = None
    rules: Sequence[RuleFile] = ()


class Scraping(Protocol):
    """A Prometheus server that scrapes a cluster."""

    @property
    def url(self) -> str:
        """Return the base URL for queries."""
        ...

    def await_scraping(self, *, nodes: int) -> None:
        """Wait until ``nodes`` nodes have answered a scrape. Scraping begins some seconds after the server's start."""
        ...

    def close(self) -> None: ...


class Cluster(Protocol):
    """Running brokers of one topology. Node arguments are topology names (``a1``)."""

    @property
    def topology(self) -> Topology: ...

    @property
    def driver(self) -> str: ...

    @property
    def broker_version(self) -> str: ...

    @property
    def versions(self) -> Mapping[str, str]:
        """Return {node: version} if the brokers have different versions from the start, otherwise an empty mapping.
        With different versions, ``broker_version`` is the lowest."""
        ...

    @property
    def formed_in_s(self) -> float:
        """Return how long the cluster took to form, in seconds."""
        ...

    @property
    def replaced_settings(self) -> tuple[str, ...]:
        """Return the lines of the user's configuration that the harness replaced with its own."""
        ...

    def vhost_of(self, run: str) -> str:
        """Return the virtual host of the run named ``run``."""
        ...

    def lasting(self, for_s: float) -> Cluster:
        """Return this cluster for a caller whose faults last ``for_s``. Faults that a driver ends by itself then end
        some time after that."""
        ...

    def check(self) -> None:
        """Raise ClusterError if the run must stop now because it would harm other users of the cluster."""
        ...

    @property
    def links(self) -> Links: ...

    @property
    def balancers(self) -> LoadBalancers: ...

    def broker_name(self, node: str) -> str:
        """Return the Erlang name of a node, as the management API shows it."""
        ...

    @property
    def access(self) -> Access:
        """Return the user and TLS trust for clients and for the management API."""
        ...

    def amqp_endpoint(self, node: str, *, client: str | None = None) -> Endpoint:
        """Return the AMQP listener of a node or a balancer. For a ``client`` whose links carry proxies, return the
        listener of its own proxy, or of the proxy that all clients share."""
        ...

    def api(self, node: str) -> ManagementApi: ...

    def process(self, node: str) -> ProcessState: ...

    def life(self, node: str) -> str | None:
        """Return a readable name of the node's process (its incarnation); None once the process is gone. Each start
        gives another name."""
        ...

    def pids(self) -> Mapping[str, int]:
        """Return {node: process id} for the nodes whose processes this machine can inspect."""
        ...

    def exit_status(self, node: str) -> int | None:
        """Return the exit status of the node's last process: negative, or over 128, if a signal ended it. Return None
        while the process exists, or if the driver cannot know the status."""
        ...

    @property
    def restarts_brokers(self) -> bool:
        """Return whether stopped brokers come back by themselves, possibly at once, because nothing keeps them
        stopped."""
        ...

    def state(self, node: str) -> NodeState:
        """Return the node's state. ``up``: it serves AMQP; ``paused``: the process runs and its listener is closed
        (also during boot); ``suspended``: stopped by a signal; ``down``: no process."""
        ...

    def kill(self, node: str) -> None:
        """Send SIGKILL. Return when the process is gone."""
        ...

    def stop(self, node: str) -> None:
        """Shut the node down gracefully. Return when the process is gone."""
        ...

    def start(self, node: str) -> None:
        """Start a node that was killed or stopped. Return at once; ``state`` shows when it serves."""
        ...

    def lose_data(self, node: str) -> None:
        """Remove all stored data of a node whose process is gone. The node keeps its name and configuration."""
        ...

    def stored_bytes(self, node: str) -> int:
        """Return the size of the node's stored data, as the sum of its file sizes."""
        ...

    def configure(self, node: str, settings: Mapping[str, str]) -> None:
        """Add lines to the node's rabbitmq.conf, in place of the lines that an earlier call added. The node reads them
        at its next start."""
        ...

    def enable_feature_flag(self, node: str, flag: str) -> None:
        """Enable a feature flag through a node. Raise ApiError or ApiUnreachable if that fails, and ClusterError if the
        cluster is an attached one."""
        ...

    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float = 60.0) -> str:
        """Run one of RabbitMQ's command line tools (``rabbitmqctl``, ``rabbitmq-upgrade``, ...) for a node. Return its
        output. Raise ``ClusterError`` with the tool's message if it fails. Each call takes a second or more."""
        ...

    def change(self, node: str, change: BrokerChange) -> None:
        """Apply ``change`` to a running broker by ``run_tool``."""
        ...

    def change_back(self, node: str, change: BrokerChange) -> None:
        """Undo ``change``, if the broker's process still has it."""
        ...

    def pause(self, node: str) -> None: ...

    def resume(self, node: str) -> None: ...

    def scraped(self, vhost: str, *, wanted: PrometheusRequest, data: Path) -> Scraping:
        """Start a Prometheus server that scrapes every node and the queues of ``vhost``, and keeps what is ``wanted``
        in the new folder ``data``. The caller closes the server; it ends with the cluster at the latest."""
        ...

    def logs(self) -> Mapping[str, Path]:
        """Return the log file of every node, of every balancer, and of programs that act on nodes, by name."""
        ...

    def configurations(self) -> Mapping[str, str]:
        """Return the texts of the balancers' configuration files, by file name."""
        ...

    def round_trips(self) -> RoundTrips | None: ...


@runtime_checkable
class Upgradable(Cluster, Protocol):
    """A cluster whose nodes can be upgraded or downgraded: it offers ``versions`` to faults."""

    def upgrade(self, node: str, to: str) -> None:
        """Let the next start of a node, whose process is gone, use another broker. ``to`` is a version, an image name,
        or a broker's folder. Data, names, ports and settings stay. Raise ClusterError if that is not possible."""
        ...

    def version_of(self, node: str) -> str:
        """Return the version of the broker that the node is started with."""
        ...


@runtime_checkable
class StoredData(Cluster, Protocol):
    """A cluster whose stored files can be changed from here: it offers ``data`` to faults."""

    def data_folder(self, node: str) -> Path:
        """Return the folder of all files that the broker stores."""
        ...

    def preloaded_disk(self, node: str) -> PreloadedDisk:
        """Return the disk of a node that was preloaded before its start (``NodeOptions.preloaded``)."""
        ...
