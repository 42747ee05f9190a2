"""The docker driver: real brokers in containers on a network of their own, by testcontainers.

Every container sees the cluster's folder under the path that it has here, and runs as the same user. So all that is
read and written in files is the same as with processes: configuration, data, logs, and what the nodes count.

A broker's ports are published on loopback only. The engine's proxy for such a port accepts every connection, also
where nobody listens; so whether somebody does is asked of the container's own address.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal, Self

import docker
from docker.errors import APIError, DockerException
from requests import RequestException
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from topologies import images
from topologies.cluster import ClusterError
from topologies.containers import BrokerContainer, Container, RunningContainer
from topologies.engine import CLUSTER_LABEL, USER, BrokerImage, compiled_in, connect, find_image
from topologies.environment import BOUND_OPEN_FILES
from topologies.files import LOOPBACK, BrokerFiles, NodePorts
from topologies.host import Net, Program
from topologies.reaper import CONTAINERS
from topologies.running import RunningCluster
from topologies.spec import Topology

#: On a network of their own, the name of each is that of the topology.
_NET = Net("0.0.0.0", lambda name: name)  # noqa: S104 - inside a container

_PROGRAM_IMAGES: Mapping[Program, images.Image] = {"toxiproxy": images.TOXIPROXY, "prometheus": images.PROMETHEUS}

# What is left behind is removed by our own reaper, for processes and containers alike.
testcontainers_config.ryuk_disabled = True


class DockerHost:
    """Runs what belongs to the cluster in ``folder`` as containers that carry its label."""

    def __init__(self, folder: Path, image: BrokerImage, client: docker.DockerClient) -> None:
        (folder / CONTAINERS).touch()
        self._folder = folder
        self._image = image
        self._client = client
        self._labels = {CLUSTER_LABEL: str(folder)}
        self._containers: dict[str, Container] = {}
        self._network = Network(docker_network_kw={"labels": self._labels})
        try:
            self._network.create()
        except DockerException as error:
            raise ClusterError(f"the engine makes no network: {error}") from error

    @property
    def driver(self) -> Literal["docker"]:
        return "docker"

    @property
    def net(self) -> Net:
        return _NET

    def broker(self, node: str, files: BrokerFiles, environ: Mapping[str, str], ports: NodePorts) -> BrokerContainer:
        # The broker replaces the shell, and so is what the engine's signals reach.
        script = f"{BOUND_OPEN_FILES}; exec {self._image.broker.server} >>{files.output} 2>&1"
        command = ["sh", "-c", script]
        mine = {name: value for name, value in environ.items() if name not in ("TMPDIR", "LC_ALL")}
        container = self._container(
            node, self._image.name, command, ports.published, files.folder, environ=mine, entrypoint=[]
        )
        return BrokerContainer(container, files)

    def address(self, name: str) -> str:
        return self._containers[name].address

    def run(
        self, node: str, command: Sequence[str], environ: Mapping[str, str], *, folder: Path, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        with closing(connect(answer_within_s=timeout_s)) as client:
            api, there = client.api, self._containers[node].id
            try:
                execution = api.exec_create(there, list(command), environment=dict(environ), workdir=str(folder))["Id"]
                out, err = api.exec_start(execution, demux=True)
                status = api.exec_inspect(execution)["ExitCode"]
            except APIError as error:
                raise ClusterError(f"{command[0]} cannot be run for {node}: {error.explanation}") from error
            except RequestException as error:
                with suppress(OSError):
                    os.kill(self._client.api.exec_inspect(execution)["Pid"], signal.SIGKILL)
                raise subprocess.TimeoutExpired(command, timeout_s) from error
        texts = [(text or b"").decode(errors="replace") for text in (out, err)]
        return subprocess.CompletedProcess(command, status, *texts)

    def serve(
        self, program: Program, arguments: Sequence[str], *, ports: Collection[int], folder: Path, log: Path
    ) -> RunningContainer:
        image = find_image(self._client, _PROGRAM_IMAGES[program])
        container = self._container(program, image, list(arguments), ports, folder, environ={})
        container.start()
        return RunningContainer(container, log)

    def _container(
        self,
        name: str,
        image: str,
        command: list[str],
        ports: Collection[int],
        folder: Path,
        *,
        environ: Mapping[str, str],
        **fields: Any,
    ) -> Container:
        paths = {self._folder, folder if not folder.is_relative_to(self._folder) else self._folder}
        made = DockerContainer(
            image,
            name=f"rabbitmq-resilience-{self._folder.name}-{name}",
            env=dict(environ),
            volumes=[(str(path), str(path), "rw") for path in paths],
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


class DockerCluster(RunningCluster):
    """A cluster of containers."""

    @classmethod
    def form(cls, topology: Topology, *, image: BrokerImage, **fields: Any) -> Self:
        """Start a cluster and return when it has formed; ``fields`` as in ``RunningCluster.formed_on``. Raises
        ``ToolMissingError`` where no engine answers."""
        client = connect()

        def opened(folder: Path) -> DockerHost:
            return DockerHost(folder, image, client)

        return cls.formed_on(opened, topology, image.broker, compiled_in(client, image), **fields)
