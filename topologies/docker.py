"""The docker driver: real brokers in containers on a network of their own, by testcontainers.

Every container sees the cluster's folder under the path that it has here, and runs as the same user. So all that is
read and written in files is the same as with processes: configuration, data, logs, and what the nodes count.

A broker's ports are published on loopback only. The engine's proxy for such a port accepts every connection, also
where nobody listens; so whether somebody does is asked of the container's own address.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

import docker
from docker.errors import DockerException
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from topologies import images
from topologies.clocks import Clock
from topologies.cluster import ClusterError, Resources
from topologies.containers import BrokerContainer, Container, RunningContainer
from topologies.disks import Disk
from topologies.distributions import ToolMissingError, find_pumba
from topologies.engine import (
    CLUSTER_LABEL,
    USER,
    BrokerImage,
    compiled_in,
    connect,
    find_broker_image,
    find_image,
    find_network_tools,
)
from topologies.environment import BOUND_OPEN_FILES
from topologies.execution import execute
from topologies.files import LOOPBACK, BrokerFiles, NodePorts
from topologies.fittings import NONE, Fittings
from topologies.host import Net, Program
from topologies.packets import Disturbance, resets_sent
from topologies.pumba import DisturbedPackets, Pumba
from topologies.reaper import CONTAINERS
from topologies.running import RunningCluster
from topologies.signals import signals
from topologies.spec import Link, Topology
from topologies.stress import StressedNode
from topologies.stressors import Stressors

#: On a network of their own, the name of each is that of the topology.
_NET = Net("0.0.0.0", lambda name: name)  # noqa: S104 - inside a container

#: "discard", on which no broker listens and no user can.
_NOBODYS_PORT = 9
_KNOCKED_WITHIN_S = 45.0
_KILLED_STATUS = 128 + signal.SIGKILL
_PROGRAM_IMAGES: Mapping[Program, images.Image] = {"toxiproxy": images.TOXIPROXY, "prometheus": images.PROMETHEUS}

# What is left behind is removed by our own reaper, for processes and containers alike.
testcontainers_config.ryuk_disabled = True


def pumba_log(folder: Path) -> Path:
    return folder / "logs" / "pumba.log"


class DockerHost:
    """Runs what belongs to the cluster in ``folder`` as containers that carry its label."""

    def __init__(
        self, folder: Path, image: BrokerImage, client: docker.DockerClient, fittings: Fittings = NONE
    ) -> None:
        (folder / CONTAINERS).touch()
        self._folder = folder
        self._image = image
        self._client = client
        self._labels = {CLUSTER_LABEL: str(folder)}
        self._containers: dict[str, Container] = {}
        self._signals = signals(folder, pumba_log(folder))
        self._network = Network(docker_network_kw={"labels": self._labels})
        try:
            self._network.create()
        except DockerException as error:
            raise ClusterError(f"the engine makes no network: {error}") from error
        self.clocks = {node: Clock(folder / f"{node}.clock") for node in fittings.clocks}
        self.disks = {
            node: Disk(client, image.name, self._full_name(f"{node}-disk"), size_bytes=size, labels=self._labels)
            for node, size in fittings.disks.items()
        }

    @property
    def driver(self) -> Literal["docker"]:
        return "docker"

    @property
    def net(self) -> Net:
        return _NET

    @property
    def client(self) -> docker.DockerClient:
        return self._client

    def broker(
        self,
        node: str,
        files: BrokerFiles,
        environ: Mapping[str, str],
        ports: NodePorts,
        *,
        image: BrokerImage | None = None,
    ) -> BrokerContainer:
        """``image``: another one than that of the cluster."""
        taken = image or self._image
        # The broker replaces the shell, and so is what the engine's signals reach.
        script = f"{BOUND_OPEN_FILES}; exec {taken.broker.server} >>{files.output} 2>&1"
        command = ["sh", "-c", script]
        mine = {name: value for name, value in environ.items() if name not in ("TMPDIR", "LC_ALL")}
        if node in self.clocks:
            mine |= self.clocks[node].environ
        disks = [(self.disks[node].name, str(files.data), "rw")] if node in self.disks else []
        container = self._container(
            node, taken.name, command, ports.published, files.folder, environ=mine, disks=disks, entrypoint=[]
        )
        return BrokerContainer(container, files, self._signals)

    def address(self, name: str) -> str:
        return self._containers[name].address

    def container(self, name: str) -> Container:
        return self._containers[name]

    def pumba(self, log: Path) -> Pumba:
        """Raises ``ToolMissingError`` where there is none, or no image for it."""
        image = find_network_tools(self._client, self._image)
        return Pumba(find_pumba(), self._client, image, self._containers, self._labels, self._folder, log)

    def run(
        self, node: str, command: Sequence[str], environ: Mapping[str, str], *, folder: Path, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        # Who reads what a command prints waits for it without end, so the command has to end.
        bounded = ["timeout", "-s", "KILL", f"{timeout_s:g}", *command]
        begun_s = time.monotonic()
        done = execute(self._containers[node].id, bounded, node=node, environ=environ, folder=folder)
        if done.returncode == _KILLED_STATUS and time.monotonic() - begun_s >= timeout_s:
            raise subprocess.TimeoutExpired(command, timeout_s)
        return done

    def serve(
        self,
        program: Program,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        *,
        ports: Collection[int],
        folder: Path,
        log: Path,
    ) -> RunningContainer:
        image = find_image(self._client, _PROGRAM_IMAGES[program])
        container = self._container(program, image, list(arguments), ports, folder, environ=environ)
        container.start()
        return RunningContainer(container, log)

    def stress(self, node: str, stressors: Stressors, *, for_s: float, log: Path) -> StressedNode:
        image = find_image(self._client, images.STRESS)
        return StressedNode(self.pumba(log), node, stressors, image=image, for_s=for_s)

    def _container(
        self,
        name: str,
        image: str,
        command: list[str],
        ports: Collection[int],
        folder: Path,
        *,
        environ: Mapping[str, str],
        disks: Collection[tuple[str, str, str]] = (),
        **fields: Any,
    ) -> Container:
        paths = {self._folder, folder if not folder.is_relative_to(self._folder) else self._folder}
        made = DockerContainer(
            image,
            name=self._full_name(name),
            env=dict(environ),
            volumes=[*((str(path), str(path), "rw") for path in paths), *disks],
            network=self._network,
            network_aliases=[name],
            labels=self._labels,
            hostname=name,
            user=USER,
            working_dir=str(folder),
            **fields,
        ).with_command(command)
        published: dict[str, Any] = {str(port): (LOOPBACK, port) for port in ports}  # docker's own form
        made.ports.update(published)
        self._containers[name] = Container(name, made, self._client)
        return self._containers[name]

    def _full_name(self, name: str) -> str:
        return f"rabbitmq-resilience-{self._folder.name}-{name}"


class DockerCluster(RunningCluster):
    """A cluster of containers."""

    @property
    def host(self) -> DockerHost:
        assert isinstance(self._host, DockerHost)
        return self._host

    def logs(self) -> Mapping[str, Path]:
        return {**super().logs(), "pumba": self._pumba_log}

    def disturb(self, links: Collection[Link], disturbance: Disturbance, *, for_s: float) -> DisturbedPackets:
        self.reconfigured = True
        return self.host.pumba(self._pumba_log).disturb(links, disturbance, for_s=for_s)

    def knock(self, links: Collection[Link], *, times: int, at_once: int, wait_s: float) -> dict[Link, list[float]]:
        numbers = (_NOBODYS_PORT, times, at_once, round(wait_s * 1000))

        def knock_from(source: str) -> list[tuple[Link, float]]:
            there = {self.address(link.target): link for link in links if link.source == source}
            answers = (line.split() for line in self._knocks(source, *map(str, numbers), *there).splitlines())
            return [(there[address], int(us) / 1000) for address, us in answers]

        sources = {link.source for link in links}
        took: dict[Link, list[float]] = {link: [] for link in links}
        with ThreadPoolExecutor(max_workers=max(1, len(sources))) as pool:
            for link, ms in chain.from_iterable(pool.map(knock_from, sources)):
                took[link].append(ms)
        return took

    def limit(self, node: str, *, cpus: float | None, memory_bytes: int | None) -> None:
        self.reconfigured = True
        self.host.container(node).limit(cpus=cpus, memory_bytes=memory_bytes)

    def resources(self, node: str) -> Resources:
        return self.host.container(node).resources()

    def stress(self, node: str, stressors: Stressors, *, for_s: float) -> StressedNode:
        self.reconfigured = True
        return self.host.stress(node, stressors, for_s=for_s, log=self._pumba_log)

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
        old.remove()  # the new one is made with the same name and ports when it is started

    def disk(self, node: str) -> Disk:
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

    def refusals(self, node: str) -> int:
        table = self._host.run(node, ["cat", "/proc/net/snmp"], {}, folder=self._layout.folder, timeout_s=10)
        return resets_sent(table.stdout)

    def _knocks(self, source: str, *arguments: str) -> str:
        """What resilience_probe.erl prints."""
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

    @property
    def _pumba_log(self) -> Path:
        return pumba_log(self._layout.folder)

    @classmethod
    def form(cls, topology: Topology, *, image: BrokerImage, fittings: Fittings = NONE, **fields: Any) -> Self:
        """Start a cluster and return when it has formed; ``fields`` as in ``RunningCluster.formed_on``. Raises
        ``ToolMissingError`` where no engine answers."""
        client = connect()

        def opened(folder: Path) -> DockerHost:
            return DockerHost(folder, image, client, fittings)

        cluster = cls.formed_on(opened, topology, image.broker, compiled_in(client, image), **fields)
        cluster.fittings = fittings
        return cluster
