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
from rabbitmq_resilience.extensions.attached.orchestrator import Orchestrator
from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.broker.management import ManagementApi


@dataclass
class AttachedNodes:
    """The nodes of an existing cluster.

    ``machines``, ``brokers`` and ``logs`` have only the nodes whose machines can be reached.
    """

    version: str
    access: Access
    stated: Mapping[str, AttachedNode]
    apis: Mapping[str, ManagementApi]
    given_vhost: str | None = None
    machines: Mapping[str, Machine] = field(default_factory=dict)
    brokers: Mapping[str, ForeignBroker] = field(default_factory=dict)
    logs: Mapping[str, Log] = field(default_factory=dict)
    #: Whether brokers come back by themselves, maybe before they are given back.
    restarted: bool = False
    #: The version of each broker.
    versions: Mapping[str, str] = field(default_factory=dict)
    disks: Mapping[str, RemoteDisk] = field(default_factory=dict)
    changed: Mapping[str, ChangedBroker] = field(default_factory=dict)
    #: It knows nodes by their Erlang names.
    orchestrator: Orchestrator | None = None

    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float) -> str:
        """Run one of RabbitMQ's command line tools on the node's machine."""
        machine = self.machines.get(node)
        if machine is None:
            raise ClusterError(f"{tool} cannot be run for {node}: there is no way to its machine")
        return machine.run(tool_script(self.stated[node].name, tool, *arguments), timeout_s=timeout_s)

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
