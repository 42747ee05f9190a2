"""What a cluster needs of the machine, or of the container engine, that its programs run on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rabbitmq_resilience.clusters.broker.files import BrokerFiles, NodePorts
from rabbitmq_resilience.clusters.protocol import ProcessState

#: The programs beside the brokers.
Program = Literal["toxiproxy", "prometheus", "haproxy", "echo"]


@dataclass(frozen=True)
class Net:
    """How the programs of one cluster reach each other. ``listen`` is the address on which they listen, ``name_of``
    gives the name by which the others find a node or a program; ``moves``: what has that name may have another address
    after each start, which a name server tells."""

    listen: str
    name_of: Callable[[str], str]
    moves: bool = False


class Running(Protocol):
    """A program that was started."""

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        ...

    def close(self) -> None:
        """Returns when it is gone."""
        ...


class Place(Protocol):
    """The place of a broker or a program, which successive processes fill."""

    @property
    def life(self) -> str | None:
        """Names its process, as ``Cluster.life`` does."""
        ...

    @property
    def exit_status(self) -> int | None:
        """None while a process is there, and before the first one."""
        ...

    def state(self) -> ProcessState: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def stop(self, *, timeout_s: float) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Broker(Place, Protocol):
    """The place of one node."""

    @property
    def has_booted(self) -> bool:
        """The broker said that its start is complete. Its listeners are open a little earlier, and a virtual host
        that is created in between may never come up on this node."""
        ...


class Host(Protocol):
    """Runs the brokers of one cluster and what belongs to them. All of it ends with the cluster's reaper at the
    latest."""

    @property
    def driver(self) -> str: ...

    @property
    def net(self) -> Net: ...

    def broker(self, node: str, files: BrokerFiles, environ: Mapping[str, str], ports: NodePorts) -> Broker:
        """The place of a node; nothing is started yet. Its management and AMQP ports are going to be reachable on
        loopback."""
        ...

    def address(self, name: str) -> str:
        """Where the ports of a node or program can be asked whether somebody listens; those that are reachable on
        loopback too may be so by a proxy, which accepts for all."""
        ...

    def run(
        self, node: str, command: Sequence[str], environ: Mapping[str, str], *, folder: Path, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``command`` to its end beside a node. Raises subprocess.TimeoutExpired."""
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
        """Start a program in ``folder``; it is going to listen on ``ports``, which are reachable on loopback."""
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
    ) -> Place:
        """The place of a program that may be killed and started again; nothing is started yet. ``log`` gets what it
        prints."""
        ...

    def close(self) -> None:
        """Close what this process has opened to speak to the host; what runs there is ended by others."""
        ...
