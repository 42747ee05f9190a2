"""Define what can be observed of nodes and done to them, each part as a protocol of its own.

Node arguments are topology names (``a1``). The names of load balancers (``balancer:0``) serve as well where a protocol
is one of ``LoadBalancers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from rabbitmq_resilience.model.access import Access, Endpoint
from rabbitmq_resilience.model.broker_changes import BrokerChange
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.management import ManagementApi
from rabbitmq_resilience.sut.preload.preloaded_disk import PreloadedDisk

ProcessState = Literal["running", "suspended", "gone"]
NodeState = Literal["up", "paused", "suspended", "down"]


class ProcessObservation(Protocol):
    """Observe processes."""

    def process(self, node: str) -> ProcessState: ...

    def life(self, node: str) -> str | None:
        """Return a readable name of the node's process (its incarnation); None once the process is gone. Each start
        gives another name."""
        ...

    def exit_status(self, node: str) -> int | None:
        """Return the exit status of the node's last process: negative, or over 128, if a signal ended it. Return None
        while the process exists, or if the driver cannot know the status."""
        ...


class NodeObservation(ProcessObservation, Protocol):
    """Observe nodes: their processes, and whether they serve."""

    def state(self, node: str) -> NodeState:
        """Return the node's state. ``up``: it serves AMQP; ``paused``: the process runs and its listener is closed
        (also during boot); ``suspended``: stopped by a signal; ``down``: no process."""
        ...

    def pids(self) -> Mapping[str, int]:
        """Return {node: process id} for the nodes whose processes this machine can inspect."""
        ...


class ProcessKills(Protocol):
    """End processes at once."""

    def kill(self, node: str) -> None:
        """Send SIGKILL. Return when the process is gone."""
        ...


class ProcessPauses(Protocol):
    """Suspend processes."""

    def pause(self, node: str) -> None: ...

    def resume(self, node: str) -> None: ...


class ProcessStarts(Protocol):
    """Start what was killed or stopped."""

    def start(self, node: str) -> None:
        """Start a node that was killed or stopped. Return at once; ``state`` shows when it serves."""
        ...


class NodeRestarts(ProcessStarts, Protocol):
    """Shut nodes down, and start them again."""

    def stop(self, node: str) -> None:
        """Shut the node down gracefully. Return when the process is gone."""
        ...

    @property
    def restarts_brokers(self) -> bool:
        """Return whether stopped brokers come back by themselves, possibly at once, because nothing keeps them
        stopped."""
        ...


class Endpoints(Protocol):
    """Reach nodes: the topology, the users, and the addresses for AMQP and for management."""

    @property
    def topology(self) -> Topology: ...

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


class BrokerTools(Protocol):
    """Run RabbitMQ's command line tools."""

    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float = 60.0) -> str:
        """Run one of RabbitMQ's command line tools (``rabbitmqctl``, ``rabbitmq-upgrade``, ...) for a node. Return its
        output. Raise ``ClusterError`` with the tool's message if it fails. Each call takes a second or more."""
        ...


class BrokerChanges(Protocol):
    """Change running brokers, and change them back."""

    def change(self, node: str, change: BrokerChange) -> None:
        """Apply ``change`` to a running broker by ``run_tool``."""
        ...

    def change_back(self, node: str, change: BrokerChange) -> None:
        """Undo ``change``, if the broker's process still has it."""
        ...


class NodeSettings(Protocol):
    """Give brokers other settings, or enable their features."""

    def configure(self, node: str, settings: Mapping[str, str]) -> None:
        """Add lines to the node's rabbitmq.conf, in place of the lines that an earlier call added. The node reads them
        at its next start."""
        ...

    def enable_feature_flag(self, node: str, flag: str) -> None:
        """Enable a feature flag through a node. Raise ApiError or ApiUnreachable if that fails, and ClusterError if the
        cluster is an attached one."""
        ...


class NodeData(Protocol):
    """Lose what nodes have stored."""

    def lose_data(self, node: str) -> None:
        """Remove all stored data of a node whose process is gone. The node keeps its name and configuration."""
        ...

    def stored_bytes(self, node: str) -> int:
        """Return the size of the node's stored data, as the sum of its file sizes."""
        ...


@runtime_checkable
class Upgradable(Protocol):
    """A cluster whose nodes can be upgraded or downgraded: it offers ``versions`` to faults."""

    def upgrade(self, node: str, to: str) -> None:
        """Let the next start of a node, whose process is gone, use another broker. ``to`` is a version, an image name,
        or a broker's folder. Data, names, ports and settings stay. Raise ClusterError if that is not possible."""
        ...

    def version_of(self, node: str) -> str:
        """Return the version of the broker that the node is started with."""
        ...

    def version_named(self, to: str) -> str:
        """Return the version of the broker that ``upgrade`` takes for ``to``. Raise ClusterError if there is none."""
        ...


@runtime_checkable
class StoredData(Protocol):
    """A cluster whose stored files can be changed from here: it offers ``data`` to faults."""

    def data_folder(self, node: str) -> Path:
        """Return the folder of all files that the broker stores."""
        ...

    def preloaded_disk(self, node: str) -> PreloadedDisk:
        """Return the disk of a node that was preloaded before its start (``NodeOptions.preloaded``)."""
        ...

    def settle(self, node: str) -> None:
        """Let what is stored now count as flushed: the node's process is gone, and its files were changed from here."""
        ...

    def write_back(self, node: str) -> None:
        """Let all that a preloaded node has written so far count as flushed, as an operating system writes everything
        back in time."""
        ...


class LoadBalancers(ProcessObservation, ProcessKills, ProcessPauses, ProcessStarts, Protocol):
    """The load balancers of one cluster, by name (``balancer:0``)."""

    def refuses(self, name: str) -> bool:
        """Return whether the balancer refuses a connection now."""

    def answers(self, name: str, *, timeout_s: float) -> bool:
        """Return whether a broker answers the AMQP protocol header through the balancer."""
