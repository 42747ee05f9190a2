"""What clusters whose nodes are containers offer beside what all do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rabbitmq_resilience.clusters.packets import PacketActs
from rabbitmq_resilience.clusters.protocol import Upgradable
from rabbitmq_resilience.clusters.stressors import Stressors


@dataclass(frozen=True)
class Resources:
    """What a container may have and has. ``unlimited``: by no limit but what the machine has, or its topology
    (``broker_size``). ``cpu_s``: what it used of CPU, and ``waited_s``: how long its threads were kept waiting by a
    limit, both since it was started."""

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
    """The disk that holds all data of a node."""

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

    def room_seen(self) -> str:
        """What the broker still tells of room on it, in words; empty where it tells of none, or need not be asked."""
        ...


@runtime_checkable
class Disks(Protocol):
    """A cluster whose brokers have disks that can be filled."""

    def disk(self, node: str) -> Disk:
        """Of a node that was given one, or that offers it."""
        ...


@runtime_checkable
class ContainerCluster(Upgradable, PacketActs, Disks, Protocol):
    """A cluster whose nodes are containers, which offers ``packets`` and ``containers`` to faults."""

    def limit(self, node: str, *, cpus: float | None, memory_bytes: int | None) -> None:
        """None: as much as before any limit."""
        ...

    def resources(self, node: str) -> Resources: ...

    def stress(self, node: str, stressors: Stressors, *, for_s: float) -> Stressed:
        """Ends by itself some time after ``for_s``, should nobody close it. Returns once it runs."""
        ...

    def turn_clock(self, node: str, *, by_s: float) -> None:
        """Of a node that was given one: forwards, or backwards if negative. Its processes notice within a second or
        two; turned twice, it is ahead by the sum."""
        ...
