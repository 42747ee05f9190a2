"""Run real brokers as processes of this user on loopback, without root or containers (the local driver)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.environment import open_files
from rabbitmq_resilience.sut.broker.erlang_modules import compiled_erlang
from rabbitmq_resilience.sut.broker.files import BrokerFiles, NodePorts
from rabbitmq_resilience.sut.broker_host import Net, Program
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK
from rabbitmq_resilience.sut.machine.reaper import marked
from rabbitmq_resilience.sut.processes.broker_process import BrokerProcess, ProcessPlace
from rabbitmq_resilience.sut.processes.version_homes import WrongBrokerError, of_version
from rabbitmq_resilience.sut.running import RunningCluster
from rabbitmq_resilience.tools.distributions import (
    BrokerHome,
    ToolMissingError,
    find_broker,
    find_haproxy,
    find_prometheus,
    find_toxiproxy,
)

_NET = Net(LOOPBACK, lambda name: LOOPBACK)  # noqa: ARG005 - every program listens there


class LocalHost:
    """A host that runs the cluster in ``folder`` as processes, which carry the cluster's mark."""

    def __init__(self, folder: Path, *, server: Path | None = None, programs: Mapping[Program, Path] | None = None):
        """Prepare the host. ``server`` is the script that starts a broker. Programs that are not in ``programs`` are
        searched for when they are needed."""
        self._folder = folder
        self._server = server
        self._programs = dict(programs or {})
        self.brokers: dict[str, BrokerProcess] = {}

    @property
    def driver(self) -> Literal["local"]:
        return "local"

    @property
    def net(self) -> Net:
        return _NET

    def broker(self, node: str, files: BrokerFiles, environ: Mapping[str, str], ports: NodePorts) -> BrokerProcess:  # noqa: ARG002 - one form for all hosts
        assert self._server is not None, "this host was opened for programs only"
        return self.replaced(node, files, environ, server=self._server)

    def replaced(self, node: str, files: BrokerFiles, environ: Mapping[str, str], *, server: Path) -> BrokerProcess:
        """Replace the process of a node by one that ``server`` will start, and return it."""
        command = ["sh", "-c", f'ulimit -S -n {open_files()}; exec "$0"', str(server)]
        self.brokers[node] = BrokerProcess(node, command, environ, files)
        return self.brokers[node]

    def address(self, name: str) -> str:  # noqa: ARG002 - one form for all hosts
        return LOOPBACK

    def run(
        self,
        node: str,  # noqa: ARG002 - one form for all hosts
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        folder: Path,
        timeout_s: float,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=environ,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def serve(
        self,
        program: Program,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        *,
        ports: Collection[int],  # noqa: ARG002 - one form for all hosts
        folder: Path,
        log: Path,
    ) -> RunningProcess:
        return RunningProcess([self._found(program), *arguments], marked(environ, self._folder), folder, log)

    def place(
        self,
        name: str,
        program: Program,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        *,
        ports: Collection[int],  # noqa: ARG002 - one form for all hosts
        folder: Path,
        log: Path,
    ) -> ProcessPlace:
        command = [self._found(program), *arguments]
        return ProcessPlace(name, command, marked(environ, self._folder), folder=folder, output=log)

    def _found(self, program: Program) -> str:
        return str(self._programs.get(program) or _FIND[program]())

    def close(self) -> None:
        """Do nothing: the host holds nothing open."""


_FIND: Mapping[Program, Callable[[], Path]] = {
    "toxiproxy": find_toxiproxy,
    "prometheus": find_prometheus,
    "haproxy": find_haproxy,
    "echo": lambda: Path(sys.executable),
}


class RunningProcess:
    """A program as a child process."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path, log: Path) -> None:
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=environ,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        return self._process.poll()

    def close(self) -> None:
        """Kill the program. Its data is in its files already, so a graceful end is not needed."""
        self._process.kill()
        self._process.wait()


class LocalCluster(RunningCluster):
    """A cluster of local processes."""

    @classmethod
    def form(
        cls, topology: Topology, *, broker: BrokerHome | None = None, toxiproxy: Path | None = None, **fields: Any
    ) -> Self:
        """Start a cluster and return when it has formed. ``broker`` and ``toxiproxy`` name what to run; without them
        ``tools.distributions`` finds both. ``fields`` are those of ``RunningCluster.formed_on``."""
        found = broker or find_broker()
        programs: dict[Program, Path] = {} if toxiproxy is None else {"toxiproxy": toxiproxy}

        def opened(folder: Path) -> LocalHost:
            return LocalHost(folder, server=found.server, programs=programs)

        return cls.formed_on(opened, topology, found, compiled_erlang(found), **fields)

    def pids(self) -> dict[str, int]:
        assert isinstance(self._host, LocalHost)
        return {n: pid for n, process in self._host.brokers.items() if (pid := process.pid) is not None}

    def upgrade(self, node: str, to: str) -> None:
        """Let the next start of a node, whose process is gone, use another broker. ``to`` is a version, a series, or a
        broker's folder."""
        if self.process(node) != "gone":
            raise ClusterError(f"{node} is {self.process(node)}: only a node whose process is gone can be upgraded")
        assert isinstance(self._host, LocalHost)
        self.reconfigured = True
        try:
            broker = of_version(to)
            self._layout.rehome(node, broker, compiled_erlang(broker))
        except (ToolMissingError, WrongBrokerError) as error:
            raise ClusterError(f"{node} cannot be upgraded: {error}") from error
        self._brokers[node] = self._host.replaced(
            node, self._layout.files[node], self._layout.environ(node), server=broker.server
        )

    def version_of(self, node: str) -> str:
        return self._layout.homes[node].version

    def version_named(self, to: str) -> str:
        try:
            return of_version(to).version
        except (ToolMissingError, WrongBrokerError) as error:
            raise ClusterError(str(error)) from error
