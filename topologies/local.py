"""The local driver: real brokers as processes of this user on loopback, without root or containers."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from topologies.broker_process import BrokerProcess
from topologies.distributions import BrokerHome, compiled_erlang, find_broker, find_prometheus, find_toxiproxy
from topologies.files import LOOPBACK, BrokerFiles, NodePorts
from topologies.host import Net, Program
from topologies.reaper import marked
from topologies.running import RunningCluster
from topologies.spec import Topology

_NET = Net(LOOPBACK, lambda name: LOOPBACK)  # noqa: ARG005 - everybody is found there


class LocalHost:
    """Runs what belongs to the cluster in ``folder`` as processes that carry its mark."""

    def __init__(self, folder: Path, *, server: Path | None = None, programs: Mapping[Program, Path] | None = None):
        """``server`` starts a broker; of ``programs`` those that are not given are looked for when they are needed."""
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

    def broker(self, node: str, files: BrokerFiles, environ: Mapping[str, str], ports: NodePorts) -> BrokerProcess:  # noqa: ARG002
        assert self._server is not None, "this host was opened for programs only"
        return self.brokers.setdefault(node, BrokerProcess(node, [str(self._server)], environ, files))

    def address(self, name: str) -> str:  # noqa: ARG002
        return LOOPBACK

    def run(
        self,
        node: str,  # noqa: ARG002
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
        ports: Collection[int],  # noqa: ARG002
        folder: Path,
        log: Path,
    ) -> RunningProcess:
        found = self._programs.get(program) or _FIND[program]()
        return RunningProcess([str(found), *arguments], marked(environ, self._folder), folder, log)


_FIND = {"toxiproxy": find_toxiproxy, "prometheus": find_prometheus}


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
        """What such a program keeps is in its files already, so there is nothing to wait for."""
        self._process.kill()
        self._process.wait()


class LocalCluster(RunningCluster):
    """A cluster of local processes."""

    @classmethod
    def form(
        cls, topology: Topology, *, broker: BrokerHome | None = None, toxiproxy: Path | None = None, **fields: Any
    ) -> Self:
        """Start a cluster and return when it has formed. ``broker`` and ``toxiproxy``: what to run, see
        ``topologies.distributions`` where not given; ``fields`` as in ``RunningCluster.formed_on``."""
        found = broker or find_broker()
        programs: dict[Program, Path] = {} if toxiproxy is None else {"toxiproxy": toxiproxy}

        def opened(folder: Path) -> LocalHost:
            return LocalHost(folder, server=found.server, programs=programs)

        return cls.formed_on(opened, topology, found, compiled_erlang(found), **fields)

    def pids(self) -> dict[str, int]:
        """The processes of the nodes that have one."""
        assert isinstance(self._host, LocalHost)
        return {n: pid for n, process in self._host.brokers.items() if (pid := process.pid) is not None}
