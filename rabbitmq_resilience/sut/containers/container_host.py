"""Run the brokers and programs of one cluster in the container engine, with their disks, clocks and limits."""

from __future__ import annotations

import secrets
import shlex
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import docker
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from rabbitmq_resilience.model.node_options import NONE, NodeOptions
from rabbitmq_resilience.model.stressors import Stressors
from rabbitmq_resilience.model.topology import BrokerSize
from rabbitmq_resilience.sut.broker.environment import BOUND_OPEN_FILES
from rabbitmq_resilience.sut.broker.files import BrokerFiles, NodePorts
from rabbitmq_resilience.sut.broker_host import ManagedProcess, Net, Program
from rabbitmq_resilience.sut.containers import ending
from rabbitmq_resilience.sut.containers.clocks import NodeClock
from rabbitmq_resilience.sut.containers.container import (
    LISTED_WITHIN_S,
    BrokerContainer,
    Container,
    ContainerPlace,
    RunningContainer,
    limited_to,
    speaking_by,
)
from rabbitmq_resilience.sut.containers.container_stress import StressedNode
from rabbitmq_resilience.sut.containers.disks import VolumeDisk
from rabbitmq_resilience.sut.containers.engine_client import (
    CLUSTER_LABEL,
    USER,
    BrokerImage,
    connected,
    find_image,
    find_network_tools,
    remove_forgotten,
)
from rabbitmq_resilience.sut.containers.engine_errors import naming
from rabbitmq_resilience.sut.containers.execution import execute
from rabbitmq_resilience.sut.containers.program_container import ProgramContainer
from rabbitmq_resilience.sut.containers.pumba import Pumba
from rabbitmq_resilience.sut.containers.signals import signals
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK
from rabbitmq_resilience.sut.machine.reaper import ENDED_BY
from rabbitmq_resilience.tools import image_names as images
from rabbitmq_resilience.tools.distributions import find_pumba

#: Containers have their own network. Their host names are the topology's names; the colon of balancers becomes "-".
_NET = Net("0.0.0.0", lambda name: name.replace(":", "-"), moves=True)  # noqa: S104 - inside a container

_KILLED_STATUS = 128 + signal.SIGKILL
_PROGRAM_IMAGES: Mapping[Program, images.Image] = {
    "toxiproxy": images.TOXIPROXY,
    "prometheus": images.PROMETHEUS,
    "haproxy": images.HAPROXY,
}

# This project's own reaper removes leftovers, for processes and containers alike.
testcontainers_config.ryuk_disabled = True


def pumba_log(folder: Path) -> Path:
    return folder / "logs" / "pumba.log"


def _joined(*environs: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that names every library that one of ``environs`` preloads."""
    libraries = [environ["LD_PRELOAD"] for environ in environs if "LD_PRELOAD" in environ]
    return {"LD_PRELOAD": ":".join(libraries)}


class DockerHost:
    """A host that runs the cluster in ``folder`` as containers, which carry the cluster's label."""

    def __init__(
        self, folder: Path, image: BrokerImage, equipment: NodeOptions = NONE, *, broker_size: BrokerSize | None = None
    ) -> None:
        """Connect to the engine and create the cluster's network and disks. Raise ``ToolMissingError`` if no engine
        answers, and ``ClusterError`` if the engine refuses."""
        (folder / ENDED_BY).write_text(ending.__name__, encoding="utf-8")
        self._folder = folder
        self._image = image
        self._broker_size = broker_size
        self._forming = True
        self._labels = {CLUSTER_LABEL: str(folder)}
        # The prefix is random: containers outlive claims, so those of an older cluster may still have its names.
        self._prefix = f"rabbitmq-resilience-{folder.name}-{secrets.token_hex(3)}"
        self._containers: dict[str, Container] = {}
        self._signals = signals(folder, pumba_log(folder))
        self.clocks = {node: NodeClock(folder / f"{node}.clock") for node in equipment.clocks}
        with ExitStack() as opened:
            opened.callback(self._signals.close)
            self._client = opened.enter_context(connected())
            self._looking = opened.enter_context(connected(answer_within_s=LISTED_WITHIN_S))
            remove_forgotten(folder, self._client)
            self._network = speaking_by(self._client, Network(self._unconnected, {"labels": self._labels}))
            with naming("the engine makes no network"):
                self._network.create()
            self.disks = {
                node: VolumeDisk(
                    self._client, image.name, self._full_name(f"{node}-disk"), size_bytes=s, labels=self._labels
                )
                for node, s in equipment.disks.items()
            }
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    @property
    def _unconnected(self) -> dict[str, Any]:
        """Return the options with which testcontainers makes a client that opens no connection: ``speaking_by``
        replaces it."""
        return {"version": self._client.api.api_version}

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
        """Return the slot of a node, see ``Host.broker``. ``image``: an image instead of the cluster's."""
        taken = image or self._image
        # The broker replaces the shell, so that the engine's signals reach the broker.
        script = f"{BOUND_OPEN_FILES}; exec {taken.broker.server} >>{files.output} 2>&1"
        command = ["sh", "-c", script]
        mine = {name: value for name, value in environ.items() if name not in ("TMPDIR", "LC_ALL")}
        if node in self.clocks:
            mine |= {**self.clocks[node].environ, **_joined(mine, self.clocks[node].environ)}
        disks = [(self.disks[node].name, str(files.data), "rw")] if node in self.disks else []
        container = self._container(
            node,
            taken.name,
            command,
            ports.published,
            files.folder,
            environ=mine,
            disks=disks,
            size=self._broker_size,
            entrypoint=[],
        )
        return BrokerContainer(container, files, self._signals)

    def hold_to_size(self) -> None:
        """Apply the limit of cores to all brokers. Before this call they have all cores: with a fifth of a core each,
        seven brokers would take minutes to form a cluster."""
        self._forming = False
        for container in self._containers.values():
            container.hold_to_size()

    def address(self, name: str) -> str:
        return self._containers[name].address

    def container(self, name: str) -> Container:
        return self._containers[name]

    def pumba(self, log: Path) -> Pumba:
        """Return Pumba for this cluster. Raise ``ToolMissingError`` if Pumba or the image for it is missing."""
        image = find_network_tools(self._client, self._image)
        return Pumba(find_pumba(), self._client, image, self._containers, self._labels, self._folder, log)

    def run(
        self, node: str, command: Sequence[str], environ: Mapping[str, str], *, folder: Path, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        # A read of the command's output has no timeout, so ``timeout`` bounds the command itself.
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

    def place(
        self,
        name: str,
        program: Program,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        *,
        ports: Collection[int],
        folder: Path,
        log: Path,
    ) -> ManagedProcess:
        image = find_image(self._client, _PROGRAM_IMAGES[program])
        # The program replaces the shell, so that the engine's signals reach the program.
        command = ["sh", "-c", f"exec {shlex.join([program, *arguments])} >>{shlex.quote(str(log))} 2>&1"]
        container = self._container(name, image, command, ports, folder, environ=environ, entrypoint=[])
        return ContainerPlace(container, self._signals, log=log)

    def run_image(
        self, image: str, command: Sequence[str], environ: Mapping[str, str], **where: Any
    ) -> ProgramContainer:
        """Start a program, see ``container_protocol.ProgramImages``."""
        return ProgramContainer(self._client, image, command, environ, labels=self._labels, **where)

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
        size: BrokerSize | None = None,
        **fields: Any,
    ) -> Container:
        paths = {self._folder, folder if not folder.is_relative_to(self._folder) else self._folder}
        container = DockerContainer(
            image,
            docker_client_kw=self._unconnected,
            name=self._full_name(name),
            env=dict(environ),
            volumes=[*((str(path), str(path), "rw") for path in paths), *disks],
            network=self._network,
            network_aliases=[_NET.name_of(name)],
            labels=self._labels,
            hostname=_NET.name_of(name),
            user=USER,
            working_dir=str(folder),
            **limited_to(size, forming=self._forming),
            **fields,
        ).with_command(command)
        published: dict[str, Any] = {str(port): (LOOPBACK, port) for port in ports}  # docker's own form
        container.ports.update(published)
        self._containers[name] = Container(
            name, speaking_by(self._client, container), self._client, self._looking, size=size
        )
        return self._containers[name]

    def _full_name(self, name: str) -> str:
        return f"{self._prefix}-{_NET.name_of(name)}"
