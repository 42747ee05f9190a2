"""Define what can be done to the machine of a node, or to its container, each part as a protocol of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rabbitmq_resilience.model.stressors import Stressors

#: The prefix of a need (see ``nemesis.footprint.Footprint.needs``) for the image of a program.
PROGRAM_IMAGE = "the image "


@dataclass(frozen=True)
class Resources:
    """The limits and usage of a container. ``unlimited``: whether only the machine or the topology (``broker_size``)
    limits it. ``cpu_s``: its CPU time, and ``waited_s``: how long a limit kept its threads waiting, both since its
    start."""

    unlimited: bool
    cpu_s: float
    waited_s: float
    memory_bytes: int
    memory_used_bytes: int


class Stressed(Protocol):
    """A node with a running stress-ng, until ``close``."""

    @property
    def is_within_limits(self) -> bool:
        """Return whether stress-ng shares the limits of the node's container."""
        ...

    def resources(self) -> Resources | None:
        """Return what stress-ng uses; None once stress-ng is gone."""
        ...

    def close(self) -> None:
        """End stress-ng. Raise ``ClusterError`` if it ended early, or does not end."""
        ...


class NodeDisk(Protocol):
    """The disk that holds all data of a node."""

    def fill(self) -> None:
        """Fill the disk to the last block."""
        ...

    def empty(self) -> None:
        """Undo ``fill``."""
        ...

    def free_bytes(self) -> int: ...

    def takes(self) -> bool:
        """Return whether a block can be written now."""
        ...

    def room_seen(self) -> str:
        """Return a text with the free space that the broker still reports. Return an empty text if the broker reports
        none, or if its report does not matter."""
        ...


@runtime_checkable
class Disks(Protocol):
    """A cluster whose brokers have disks that can be filled."""

    def disk(self, node: str) -> NodeDisk:
        """Return the disk of a node that got its own disk, or whose machine offers it."""
        ...


@runtime_checkable
class ResourceLimits(Protocol):
    """A cluster whose nodes can be limited in what they get of their machine."""

    def limit(self, node: str, *, cpus: float | None, memory_bytes: int | None) -> None:
        """Limit the CPU and memory of a node. None restores the original value."""
        ...

    def resources(self, node: str) -> Resources: ...


@runtime_checkable
class Stressing(Protocol):
    """A cluster whose nodes can be put under stress."""

    def stress(self, node: str, stressors: Stressors, *, for_s: float) -> Stressed:
        """Run stress-ng in a node's container. Return once stress-ng runs. It ends by itself some time after ``for_s``
        if the caller does not close it."""
        ...


@runtime_checkable
class NodeClocks(Protocol):
    """A cluster whose nodes can have other clocks."""

    def turn_clock(self, node: str, *, by_s: float) -> None:
        """Turn the clock of a node that got its own clock: forwards, or backwards if ``by_s`` is negative. Its
        processes notice this within a second or two. Repeated turns add up."""
        ...


class StartedProgram(Protocol):
    """A program, from its start to its end."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return the status with which it ended; None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Return the status with which it ended. Raise subprocess.TimeoutExpired if it does not end in time."""
        ...

    def send_signal(self, number: int, /) -> None:
        """Send a signal, unless the program has ended."""
        ...

    def kill_all(self) -> None:
        """Kill the program and all that it has started, also what it has left."""
        ...


@runtime_checkable
class ProgramImages(Protocol):
    """A cluster whose container engine runs images of other programs, on this machine's network."""

    def run_image(
        self,
        image: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        folder: Path | None,
        readable: Collection[Path],
        writable: Collection[Path],
        log: Path,
    ) -> StartedProgram:
        """Start a program; without a ``command`` it is the image's own. It is shown ``folder``, in which it is run, and
        ``readable`` files, and may write to ``writable`` files, which are there. ``log`` gets its output. It ends with
        the cluster at the latest. Raise ``ClusterError``."""
        ...
