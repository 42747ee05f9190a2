"""What clusters whose nodes are containers offer beside what all do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rabbitmq_resilience.clusters.packets import Disturbance
from rabbitmq_resilience.clusters.protocol import Cluster
from rabbitmq_resilience.clusters.spec import Link
from rabbitmq_resilience.clusters.stressors import Stressors


class DisturbedPackets(Protocol):
    """What is done to the packets of some links, until it is closed."""

    def met(self) -> Mapping[Link, int]:
        """How many packets of each link it has met by now: those that were dropped by iptables; those that went through
        netem's queue, to all peers of the source together. A link where nothing is in place is not in it."""
        ...

    def close(self) -> None:
        """Raises ``ClusterError`` where it did not last until now, or something of it is left."""
        ...


@dataclass(frozen=True)
class Resources:
    """What a container may have and has. ``unlimited``: by no limit but what the machine has. ``cpu_s``: what it used
    of CPU, and ``waited_s``: how long its threads were kept waiting by a limit, both since it was started."""

    unlimited: bool
    cpu_s: float
    waited_s: float
    memory_bytes: int
    memory_used_bytes: int


class Stressed(Protocol):
    """A node beside which stress-ng runs, until it is closed."""

    @property
    def is_within_limits(self) -> bool:
        """Whether it shares the limits of the node's container."""
        ...

    def resources(self) -> Resources | None:
        """What stress-ng uses; None once it is gone."""
        ...

    def close(self) -> None:
        """Raises ``ClusterError`` where it did not last until now, or does not end."""
        ...


class Disk(Protocol):
    """A disk of a known size that holds all data of a node."""

    def fill(self) -> None:
        """To the last block."""
        ...

    def empty(self) -> None:
        """Undo ``fill``."""
        ...

    def free_bytes(self) -> int: ...

    def takes(self) -> bool:
        """Whether a block can be written now."""
        ...


@runtime_checkable
class ContainerCluster(Cluster, Protocol):
    """A cluster whose nodes are containers, which offers ``packets`` and ``containers`` to faults."""

    def disturb(self, links: Collection[Link], disturbance: Disturbance, *, for_s: float) -> DisturbedPackets:
        """Does that to the packets of links between brokers that carry no proxy; ends by itself some time after
        ``for_s``, should nobody close it. Returns once it is in place."""
        ...

    def try_connections(
        self, links: Collection[Link], *, times: int, at_once: int, wait_s: float
    ) -> Mapping[Link, Sequence[float]]:
        """Sends so many packets over each link, some of them at once, which the target's kernel answers; what each
        answer took, in ms. There is none to a packet that is lost on either way, or late."""
        ...

    def limit(self, node: str, *, cpus: float | None, memory_bytes: int | None) -> None:
        """None: as much as the machine has."""
        ...

    def resources(self, node: str) -> Resources: ...

    def stress(self, node: str, stressors: Stressors, *, for_s: float) -> Stressed:
        """Ends by itself some time after ``for_s``, should nobody close it. Returns once it runs."""
        ...

    def upgrade(self, node: str, to: str) -> None:
        """From its next start on the node, whose process is gone, is of another image: that of the version ``to``, or
        the one of that name. Its data, names, ports and settings stay."""
        ...

    def disk(self, node: str) -> Disk:
        """Of a node that was given one."""
        ...

    def turn_clock(self, node: str, *, by_s: float) -> None:
        """Of a node that was given one: forwards, or backwards if negative. Its processes notice within a second or
        two; turned twice, it is ahead by the sum."""
        ...

    def version_of(self, node: str) -> str:
        """The version of the broker that the node is started with."""
        ...

    def refusals(self, node: str) -> int:
        """How many connections the node's kernel has refused: as many as were knocked for, and those that arrived twice
        twice."""
        ...
