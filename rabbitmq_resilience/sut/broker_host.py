"""Define the protocols of the machine or container engine on which the programs of a cluster run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.broker.files import BrokerFiles, NodePorts
from rabbitmq_resilience.sut.node_protocol import ProcessState

#: The programs of a cluster in addition to the brokers.
Program = Literal["toxiproxy", "prometheus", "haproxy", "echo"]


@dataclass(frozen=True)
class Net:
    """How the programs of one cluster reach each other. ``listen`` is the address on which they listen. ``name_of``
    returns the host name of a node or program. ``moves``: the address behind that name may change at each start, and a
    name server resolves it."""

    listen: str
    name_of: Callable[[str], str]
    moves: bool = False


class Running(Protocol):
    """A program that was started."""

    @property
    def exit_status(self) -> int | None:
        """Return the exit status; None while the program runs."""
        ...

    def close(self) -> None:
        """End the program. Return when it is gone."""
        ...


class ManagedProcess(Protocol):
    """The slot of a broker or a program; each start runs a new process in it."""

    @property
    def life(self) -> str | None:
        """Return a name of the current process, as ``Cluster.life`` does."""
        ...

    @property
    def exit_status(self) -> int | None:
        """Return the exit status of the last process; None while a process exists, and before the first one."""
        ...

    def state(self) -> ProcessState: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def stop(self, *, timeout_s: float) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Broker(ManagedProcess, Protocol):
    """The slot of one node."""

    @property
    def has_booted(self) -> bool:
        """Return whether the broker has reported that its start is complete. Its listeners open a little earlier. A
        virtual host that is created in between may never come up on this node."""
        ...


class Host(Protocol):
    """A machine or container engine that runs the brokers and programs of one cluster. The cluster's reaper ends all of
    them at the latest."""

    @property
    def driver(self) -> str: ...

    @property
    def net(self) -> Net: ...

    def broker(self, node: str, files: BrokerFiles, environ: Mapping[str, str], ports: NodePorts) -> Broker:
        """Return the slot of a node, without starting it. Its management and AMQP ports will be reachable on
        loopback."""
        ...

    def address(self, name: str) -> str:
        """Return the address at which to check whether a port of a node or program is open. A port on loopback may
        belong to the engine's proxy, which accepts every connection."""
        ...

    def run(
        self, node: str, command: Sequence[str], environ: Mapping[str, str], *, folder: Path, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``command`` to its end in the environment of a node. Raise subprocess.TimeoutExpired if it takes longer
        than ``timeout_s``."""
        ...

    def serve(
        self,
        program: Program,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        *,
        ports: Collection[int],
        folder: Path,
        log: Path,
    ) -> Running:
        """Start a program in ``folder``. It will listen on ``ports``, which are reachable on loopback."""
        ...

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
        """Return the slot of a program that may be killed and started again, without starting it. ``log`` gets its
        output."""
        ...

    def close(self) -> None:
        """Close this process's connections to the host. The reaper ends the programs that run there."""
        ...


def output_of(
    host: Host,
    node: str,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    folder: Path,
    call: str,
    timeout_s: float,
) -> str:
    """Run ``command`` in the environment of a node, and return its output. Raise ``ClusterError`` if it fails or takes
    too long. ``call``: its name in that error."""
    try:
        done = host.run(node, command, environ, folder=folder, timeout_s=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{call} gave no answer within {timeout_s:g} s") from error
    if done.returncode != 0:
        raise ClusterError(f"{call} failed with status {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
