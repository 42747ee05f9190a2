"""Hold what is known of the nodes of an existing cluster, by their names in a topology."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from rabbitmq_resilience.extensions.attached.changing import ChangedBroker
from rabbitmq_resilience.extensions.attached.cluster_model import AttachedNode
from rabbitmq_resilience.extensions.attached.disk_filling import RemoteDisk
from rabbitmq_resilience.extensions.attached.foreign_broker import ForeignBroker
from rabbitmq_resilience.extensions.attached.held_links import on_each
from rabbitmq_resilience.extensions.attached.logs import Log
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError, tool_script
from rabbitmq_resilience.extensions.attached.node_backends import NodeBackend
from rabbitmq_resilience.extensions.attached.orchestrator import Orchestrator
from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.broker.management import ManagementApi


@dataclass
class AttachedNodes:
    """The nodes of an existing cluster.

    ``backends`` has only the nodes that can be reached.
    """

    version: str
    access: Access
    stated: Mapping[str, AttachedNode]
    apis: Mapping[str, ManagementApi]
    given_vhost: str | None = None
    backends: Mapping[str, NodeBackend] = field(default_factory=dict)
    #: Whether brokers come back by themselves, maybe before they are given back.
    restarted: bool = False
    #: The version of each broker.
    versions: Mapping[str, str] = field(default_factory=dict)
    #: It knows nodes by their Erlang names.
    orchestrator: Orchestrator | None = None

    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float) -> str:
        """Run one of RabbitMQ's command line tools on the node's machine."""
        backend = self.backends.get(node)
        machine = None if backend is None else backend.machine
        if machine is None:
            raise ClusterError(f"{tool} cannot be run for {node}: there is no way to its machine")
        return machine.run(tool_script(self.stated[node].name, tool, *arguments), timeout_s=timeout_s)

    @property
    def machines(self) -> dict[str, Machine]:
        return {name: node.machine for name, node in self.backends.items() if node.machine is not None}

    @property
    def logs(self) -> dict[str, Log]:
        return {name: node.log for name, node in self.backends.items() if node.log is not None}

    def broker(self, node: str) -> ForeignBroker | None:
        """Return the broker; None if there is no way to it."""
        backend = self.backends.get(node)
        return None if backend is None else backend.broker

    def disk(self, node: str) -> RemoteDisk:
        disk = self.backends[node].disk
        assert disk is not None, "acts that are not offered were refused before"
        return disk

    def changed(self, node: str) -> ChangedBroker:
        changed = self.backends[node].changed
        assert changed is not None, "acts that are not offered were refused before"
        return changed

    def metrics_endpoints(self) -> dict[str, str]:
        """Return the ``host:port`` at which each node exposes its metrics."""
        found = {node: urlsplit(stated.prometheus or "") for node, stated in self.stated.items()}
        return {node: f"{parts.hostname}:{parts.port or 80}" for node, parts in found.items() if parts.hostname}

    def begin_logs(self) -> None:
        """Begin to read all logs: what is logged from now on belongs to this run."""
        on_each(self.logs.values(), lambda log: log.begin())

    def copied_logs(self, folder: Path) -> dict[str, Path]:
        """Copy what brokers have logged into ``folder``, and return the copies by node.

        Logs that cannot be read are left out; text that was copied before is kept.
        """
        found: dict[str, Path] = {}
        (folder / "logs").mkdir(exist_ok=True)
        for node, log in self.logs.items():
            path = folder / "logs" / f"{node}.log"
            with suppress(MachineError, ValueError):  # the earlier text is kept
                text = log.more()
                with path.open("a", encoding="utf-8") as copied:
                    copied.write(text)
            if path.exists():
                found[node] = path
        return found
