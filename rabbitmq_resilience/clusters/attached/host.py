"""Run programs on this machine for a cluster that is elsewhere: proxies for our own clients, and Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rabbitmq_resilience.clusters.access import Endpoint
from rabbitmq_resilience.clusters.host import Net
from rabbitmq_resilience.clusters.machine.claims import LOOPBACK
from rabbitmq_resilience.clusters.network.links import Traffic
from rabbitmq_resilience.clusters.processes.cluster import LocalHost
from rabbitmq_resilience.clusters.spec import Link


class AttachedHost(LocalHost):
    """This machine, whose programs find nodes at ``endpoints``, by their names in the topology."""

    def __init__(self, folder: Path, endpoints: Mapping[str, Endpoint]) -> None:
        super().__init__(folder)
        self._endpoints = endpoints

    @property
    def net(self) -> Net:
        return Net(LOOPBACK, lambda name: self._endpoints[name].host if name in self._endpoints else LOOPBACK)

    def address(self, name: str) -> str:
        return self.net.name_of(name)

    def port_behind(self, link: Link) -> int:
        return self._endpoints[link.target].port

    def traffic(self, node: str) -> Mapping[str, Traffic]:  # noqa: ARG002 - unknown of brokers that are not ours
        return {}
