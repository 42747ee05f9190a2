"""Run programs on this machine for a cluster that is elsewhere: proxies for our own clients, and Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.sut.broker_host import Net
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK
from rabbitmq_resilience.sut.network.proxied_links import ConnectionTraffic
from rabbitmq_resilience.sut.processes.process_cluster import LocalHost


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

    def traffic(self, node: str) -> Mapping[str, ConnectionTraffic]:  # noqa: ARG002 - unknown of brokers that are not ours
        return {}
