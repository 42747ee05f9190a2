"""The nodes of a cluster that is there already, by their names in a topology, and what is known of each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from rabbitmq_resilience.clusters.access import Access
from rabbitmq_resilience.clusters.attached.broker import Broker
from rabbitmq_resilience.clusters.attached.changing import ChangedBroker
from rabbitmq_resilience.clusters.attached.disk import RemoteDisk
from rabbitmq_resilience.clusters.attached.held_links import on_each
from rabbitmq_resilience.clusters.attached.logs import Log
from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError, tool_script
from rabbitmq_resilience.clusters.attached.orchestrator import Orchestrator
from rabbitmq_resilience.clusters.attached.spec import AttachedNode
from rabbitmq_resilience.clusters.broker.management import ManagementApi
from rabbitmq_resilience.clusters.errors import ClusterError


@dataclass
class AttachedNodes:
    """``machines``, ``brokers`` and ``logs`` have those nodes into which there is a way."""

    version: str
    access: Access
    stated: Mapping[str, AttachedNode]
    apis: Mapping[str, ManagementApi]
    given_vhost: str | None = None
    machines: Mapping[str, Machine] = field(default_factory=dict)
    brokers: Mapping[str, Broker] = field(default_factory=dict)
    logs: Mapping[str, Log] = field(default_factory=dict)
    #: Whether brokers come back by themselves, maybe before anybody gives them back.
    restarted: bool = False
    #: Of each broker.
    versions: Mapping[str, str] = field(default_factory=dict)
    disks: Mapping[str, RemoteDisk] = field(default_factory=dict)
    changed: Mapping[str, ChangedBroker] = field(default_factory=dict)
    #: By Erlang names.
    orchestrator: Orchestrator | None = None

    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float) -> str:
        """Run one of RabbitMQ's command line tools on the node's machine."""
        machine = self.machines.get(node)
        if machine is None:
            raise ClusterError(f"{tool} cannot be run for {node}: there is no way to its machine")
        return machine.run(tool_script(self.stated[node].name, tool, *arguments), timeout_s=timeout_s)

    def metrics_endpoints(self) -> dict[str, str]:
        """Where each node tells its metrics, as ``host:port``."""
        found = {node: urlsplit(stated.prometheus or "") for node, stated in self.stated.items()}
        return {node: f"{parts.hostname}:{parts.port or 80}" for node, parts in found.items() if parts.hostname}

    def begin_logs(self) -> None:
        """What is logged from now on belongs to us."""
        on_each(self.logs.values(), lambda log: log.begin())

    def copied_logs(self, folder: Path) -> dict[str, Path]:
        """Without those that cannot be read."""
        found: dict[str, Path] = {}
        (folder / "logs").mkdir(exist_ok=True)
        for node, log in self.logs.items():
            path = folder / "logs" / f"{node}.log"
            with suppress(MachineError, ValueError):  # what was read before is kept
                text = log.more()
                with path.open("a", encoding="utf-8") as copied:
                    copied.write(text)
            if path.exists():
                found[node] = path
        return found
