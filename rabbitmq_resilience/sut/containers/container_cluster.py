"""Run real brokers in containers on their own network, by testcontainers (the docker driver).

Every container has the cluster's folder under the same path as this machine, and runs as the same user. So all files
are the same as with processes: configuration, data, logs, and the nodes' counters.

A broker's ports are published on loopback only. The engine's proxy for such a port accepts every connection, even if
the broker does not listen. So listeners are checked at the container's own address.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.node_options import NONE, NodeOptions
from rabbitmq_resilience.model.packets import Disturbance, resets_sent
from rabbitmq_resilience.model.stressors import Stressors
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.container_protocol import Resources
from rabbitmq_resilience.sut.containers.container_host import DockerHost, pumba_log
from rabbitmq_resilience.sut.containers.container_stress import StressedNode
from rabbitmq_resilience.sut.containers.disks import VolumeDisk
from rabbitmq_resilience.sut.containers.engine_client import BrokerImage, compiled_in, connected, find_broker_image
from rabbitmq_resilience.sut.containers.engine_errors import EngineGoneError
from rabbitmq_resilience.sut.containers.program_container import ProgramContainer
from rabbitmq_resilience.sut.containers.pumba import PumbaDisturbance
from rabbitmq_resilience.sut.network.knocks import knocked
from rabbitmq_resilience.sut.node_protocol import ProcessState
from rabbitmq_resilience.sut.running import RunningCluster
from rabbitmq_resilience.tools.distributions import ToolMissingError

#: The port "discard", which is always closed: no broker listens on it, and unprivileged users cannot.
_CLOSED_PORT = 9
_KNOCKED_WITHIN_S = 45.0


class DockerCluster(RunningCluster):
    """A cluster of containers."""

    @property
    def host(self) -> DockerHost:
        assert isinstance(self._host, DockerHost)
        return self._host

    #: The error with which the engine showed that it is gone; None while it answers.
    _engine_gone: EngineGoneError | None = None

    def process(self, node: str) -> ProcessState:
        try:
            state = super().process(node)
        except EngineGoneError as error:
            self._engine_gone = error
            raise
        self._engine_gone = None
        return state

    def check(self) -> None:
        """Raise EngineGoneError if the latest look at a node, by any thread, found no engine."""
        if self._engine_gone is not None:
            raise self._engine_gone

    def close(self) -> None:
        """End every container, as the base class does. Those of an engine that is gone are removed by a later run."""
        with suppress(EngineGoneError):
            super().close()

    def logs(self) -> Mapping[str, Path]:
        return {**super().logs(), "pumba": self._pumba_log}

    def disturb(self, links: Collection[Link], disturbance: Disturbance, *, for_s: float) -> PumbaDisturbance:
        self.reconfigured = True
        return self.host.pumba(self._pumba_log).disturb(links, disturbance, for_s=for_s)

    def try_connections(
        self, links: Collection[Link], *, times: int, at_once: int, wait_s: float
    ) -> dict[Link, list[float]]:
        def end_of(link: Link) -> tuple[str, int]:
            return self.address(link.target), _CLOSED_PORT

        return knocked(
            links, times=times, at_once=at_once, wait_s=wait_s, counts="refused", end_of=end_of, run=self._knocks
        )

    def limit(self, node: str, *, cpus: float | None, memory_bytes: int | None) -> None:
        self.reconfigured = True
        self.host.container(node).limit(cpus=cpus, memory_bytes=memory_bytes)

    def resources(self, node: str) -> Resources:
        return self.host.container(node).resources()

    def stress(self, node: str, stressors: Stressors, *, for_s: float) -> StressedNode:
        self.reconfigured = True
        return self.host.stress(node, stressors, for_s=for_s, log=self._pumba_log)

    def run_image(
        self, image: str, command: Sequence[str], environ: Mapping[str, str], **where: Any
    ) -> ProgramContainer:
        return self.host.run_image(image, command, environ, **where)

    def upgrade(self, node: str, to: str) -> None:
        if self.process(node) != "gone":
            raise ClusterError(f"{node} is {self.process(node)}: only a node whose process is gone can be upgraded")
        self.reconfigured = True
        client, layout, old = self.host.client, self._layout, self.host.container(node)
        try:
            image = find_broker_image(client, to)
            layout.rehome(node, image.broker, compiled_in(client, image))
        except ToolMissingError as error:
            raise ClusterError(f"{node} cannot be upgraded: {error}") from error
        self._brokers[node] = self.host.broker(
            node, layout.files[node], layout.environ(node), layout.ports[node], image=image
        )
        old.remove()  # the next start creates a new container with the same name and ports

    def disk(self, node: str) -> VolumeDisk:
        return self.host.disks[node]

    def turn_clock(self, node: str, *, by_s: float) -> None:
        self.reconfigured = True
        self.host.clocks[node].turn(by_s=by_s)

    def lose_data(self, node: str) -> None:
        if node in self.host.disks and self.process(node) == "gone":
            self.disk(node).wipe()
        else:
            super().lose_data(node)

    def stored_bytes(self, node: str) -> int:
        return self.disk(node).stored_bytes() if node in self.host.disks else super().stored_bytes(node)

    def version_of(self, node: str) -> str:
        return self._layout.homes[node].version

    def version_named(self, to: str) -> str:
        try:
            return find_broker_image(self.host.client, to).broker.version
        except ToolMissingError as error:
            raise ClusterError(str(error)) from error

    def refusals(self, node: str) -> int:
        table = self._host.run(node, ["cat", "/proc/net/snmp"], {}, folder=self._layout.folder, timeout_s=10)
        return resets_sent(table.stdout)

    def _knocks(self, source: str, arguments: Sequence[str]) -> str:
        """Run resilience_probe.erl in the container of ``source`` and return its output."""
        layout = self._layout
        erl, folder = layout.homes[source].erlang_bin / "erl", layout.folder
        command = [
            str(erl),
            "-noinput",
            "-pa",
            str(layout.ebins[source]),
            "-run",
            "resilience_probe",
            "main",
            *arguments,
        ]
        environ, timeout_s = {"ERL_CRASH_DUMP_SECONDS": "0"}, _KNOCKED_WITHIN_S
        try:
            done = self._host.run(source, command, environ, folder=folder, timeout_s=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"nothing could be sent from {source} within {timeout_s:g} s") from error
        if done.returncode != 0:
            raise ClusterError(f"nothing could be sent from {source}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _boot(self, *, timeout_s: float) -> None:
        super()._boot(timeout_s=timeout_s)
        self.host.hold_to_size()

    @property
    def _pumba_log(self) -> Path:
        return pumba_log(self._layout.folder)

    @classmethod
    def form(cls, topology: Topology, *, image: BrokerImage, equipment: NodeOptions = NONE, **fields: Any) -> Self:
        """Start a cluster and return when it has formed. ``fields`` are those of ``RunningCluster.formed_on``. Raise
        ``ToolMissingError`` if no engine answers."""
        with connected() as client:
            ebin = compiled_in(client, image)

        def opened(folder: Path) -> DockerHost:
            return DockerHost(folder, image, equipment, broker_size=topology.broker_size)

        return cls.formed_on(opened, topology, image.broker, ebin, equipment=equipment, **fields)
