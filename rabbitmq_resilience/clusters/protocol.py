"""The one protocol that every cluster driver implements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from rabbitmq_resilience.clusters.access import Access, Endpoint
from rabbitmq_resilience.clusters.alert_rules import RuleFile
from rabbitmq_resilience.clusters.broker.handshake import Probe
from rabbitmq_resilience.clusters.broker.management import ManagementApi
from rabbitmq_resilience.clusters.changes import Change
from rabbitmq_resilience.clusters.round_trips import RoundTrips
from rabbitmq_resilience.clusters.spec import Link, Topology

ProcessState = Literal["running", "suspended", "gone"]
NodeState = Literal["up", "paused", "suspended", "down"]


class Links(Protocol):
    """The proxied links of one cluster.

    Two brokers share one connection, opened by either, so what acts on the directed link a->b acts on the upstream
    side of the proxy a->b *and* the downstream side of the proxy b->a. A client's link to a node has one proxy for
    both directions. Each call takes the links that it acts on, and acts on all of them at once; those that carry no
    proxy are passed over, which the proof then shows.
    """

    @property
    def proxied(self) -> frozenset[Link]:
        """The directed links that a proxy carries: always both directions of a pair."""
        ...

    @property
    def remade(self) -> Sequence[str]:
        """The proxies that hung and were made anew, which ended their connections: each as often as that was."""
        ...

    def cut(self, links: Collection[Link]) -> None:
        """Packets stop, nothing is closed: bytes are held until ``restore``."""
        ...

    def restore(self, links: Collection[Link]) -> None:
        """Undo ``cut``: what was held arrives, on connections that neither end has given up meanwhile."""
        ...

    def refuse(self, links: Collection[Link]) -> None:
        """Connections on the links die at once, whichever end opened them, and new ones are refused."""
        ...

    def accept(self, links: Collection[Link]) -> None:
        """Undo ``refuse``."""
        ...

    def refuses(self, link: Link) -> bool:
        """Whether a connection over ``link`` is refused now, whichever end opens it."""
        ...

    def attested(self, links: Collection[Link]) -> Mapping[Link, bool] | None:
        """Whether each of those between brokers is cut now, where somebody else can tell that; None where probes do."""
        ...

    def connection(self, link: Link) -> str | None:
        """The name of the connection that the source of a link between brokers has to the target, up to 0.2 s ago;
        None while there is none. No two connections of a broker have the same."""
        ...

    def delay(self, links: Collection[Link], *, latency_ms: int, jitter_ms: int) -> None: ...

    def undelay(self, links: Collection[Link]) -> None: ...

    def held_bytes(self, link: Link) -> int | None:
        """Bytes taken in for a link between brokers and not yet delivered; None where it carries no proxy."""
        ...

    def probe_ms(self, link: Link, *, timeout_s: float, direct: bool = False) -> float | None:
        """Round trip of a probe that crosses the directed link, and whose answer crosses the way back; ``direct``: past
        the proxy. None if unanswered or not proxied."""
        ...

    def server_answers(self) -> bool:
        """Whether the server of the proxies answers a call now: it gets its share of a busy machine."""
        ...

    def probe(self, link: Link, *, direct: bool = False) -> Probe | None:
        """A connection for a probe over ``link``; ``direct``: to the same listener, past the proxy. None if it is not
        accepted or the link is not proxied."""
        ...


class LoadBalancers(Protocol):
    """The load balancers of one cluster, by name (``balancer:0``); their processes are as those of nodes."""

    def process(self, name: str) -> ProcessState: ...

    def life(self, name: str) -> str | None: ...

    def exit_status(self, name: str) -> int | None: ...

    def kill(self, name: str) -> None: ...

    def start(self, name: str) -> None: ...

    def pause(self, name: str) -> None: ...

    def resume(self, name: str) -> None: ...

    def refuses(self, name: str) -> bool:
        """Whether a connection to it is refused now."""

    def answers(self, name: str, *, timeout_s: float) -> bool:
        """Whether some broker answers the first message of AMQP through it."""


@dataclass(frozen=True)
class Wanted:
    """What a Prometheus server keeps: the named ``series``, or all; and the ``rules`` that it evaluates."""

    series: Collection[str] | None = None
    rules: Sequence[RuleFile] = ()


class Scraping(Protocol):
    """A Prometheus server that scrapes a cluster."""

    @property
    def url(self) -> str:
        """Where it answers queries."""
        ...

    def await_scraping(self, *, nodes: int) -> None:
        """Returns once so many nodes have answered it; it begins some seconds after its start."""
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
        """That of each node, where the brokers are of several from the start; ``broker_version`` is the lowest then."""
        ...

    @property
    def formed_in_s(self) -> float:
        """How long its formation took."""
        ...

    @property
    def replaced_settings(self) -> tuple[str, ...]:
        """The lines of the user's configuration that gave way to what the harness must own."""
        ...

    def vhost_of(self, run: str) -> str:
        """The virtual host of the run of that name."""
        ...

    def lasting(self, for_s: float) -> Cluster:
        """The same cluster for one who is done with it after so long: what a driver lets end by itself ends some time
        after that."""
        ...

    def check(self) -> None:
        """Raises ClusterError where a run must go on no longer, for the sake of others."""
        ...

    @property
    def links(self) -> Links: ...

    @property
    def balancers(self) -> LoadBalancers: ...

    def broker_name(self, node: str) -> str:
        """The Erlang node name, as the management API shows it."""
        ...

    @property
    def access(self) -> Access:
        """As whom clients connect, and the management API is asked."""
        ...

    def amqp_endpoint(self, node: str, *, client: str | None = None) -> Endpoint:
        """The node's AMQP listener, or a balancer's; for a ``client`` whose links carry proxies, that of its own proxy,
        or of the one that all share."""
        ...

    def api(self, node: str) -> ManagementApi: ...

    def process(self, node: str) -> ProcessState: ...

    def life(self, node: str) -> str | None:
        """Names the process of a node, for people too; after the next start it has another name. None once it is
        gone."""
        ...

    def pids(self) -> Mapping[str, int]:
        """The processes of the nodes that have one which this machine can look at: {node: its number}."""
        ...

    def exit_status(self, node: str) -> int | None:
        """How the node's last process ended: negative, or over 128, by a signal. None while it is there, or where
        nobody can tell."""
        ...

    @property
    def restarts_brokers(self) -> bool:
        """Whether brokers that were taken away come back by themselves, maybe at once, as nobody holds them down."""
        ...

    def state(self, node: str) -> NodeState:
        """``up``: serves AMQP; ``paused``: the process lives and its listener is closed (also while
        booting); ``suspended``: stopped by a signal; ``down``: no process."""
        ...

    def kill(self, node: str) -> None:
        """SIGKILL. Returns when the process is gone."""
        ...

    def stop(self, node: str) -> None:
        """Graceful shutdown. Returns when the process is gone."""
        ...

    def start(self, node: str) -> None:
        """Start a node that was killed or stopped; returns at once, see ``state``."""
        ...

    def lose_data(self, node: str) -> None:
        """Remove all that a node has stored; its process is gone. It keeps its name and configuration."""
        ...

    def stored_bytes(self, node: str) -> int:
        """What a node has stored, by the sizes of its files."""
        ...

    def configure(self, node: str, settings: Mapping[str, str]) -> None:
        """Add lines to the node's rabbitmq.conf, in place of those that an earlier call added. It reads them when it is
        started next."""
        ...

    def enable_feature_flag(self, node: str, flag: str) -> None:
        """Enable a feature flag through that node. Raises ApiError, ApiUnreachable, and ClusterError where the cluster
        is not ours."""
        ...

    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float = 60.0) -> str:
        """Run one of RabbitMQ's own command line tools (``rabbitmqctl``, ``rabbitmq-upgrade``, ...) for a node; what it
        printed. Raises ``ClusterError`` with its words if it fails. Each call takes a second or more."""
        ...

    def change(self, node: str, change: Change) -> None:
        """Do it to a broker that runs, by ``run_tool``."""
        ...

    def change_back(self, node: str, change: Change) -> None:
        """Undo ``change``, where the process has not forgotten it by itself."""
        ...

    def pause(self, node: str) -> None: ...

    def resume(self, node: str) -> None: ...

    def scraped(self, vhost: str, *, wanted: Wanted, data: Path) -> Scraping:
        """Starts a Prometheus server that keeps what is ``wanted`` of every node, and of the queues of ``vhost``, in
        the new folder ``data``; to be closed by the caller, it ends with the cluster at the latest."""
        ...

    def logs(self) -> Mapping[str, Path]:
        """The log file of every node, of every balancer, and of programs that act on nodes."""
        ...

    def configurations(self) -> Mapping[str, str]:
        """What the balancers were told: the texts of their files, by name."""
        ...

    def round_trips(self) -> RoundTrips | None: ...


@runtime_checkable
class Upgradable(Cluster, Protocol):
    """A cluster whose nodes can become brokers of another version: it offers ``versions`` to faults."""

    def upgrade(self, node: str, to: str) -> None:
        """From its next start on the node, whose process is gone, is of another version: ``to``, which may also be the
        name of an image, or the folder of a broker. Its data, names, ports and settings stay. Raises ClusterError."""
        ...

    def version_of(self, node: str) -> str:
        """The version of the broker that the node is started with."""
        ...
