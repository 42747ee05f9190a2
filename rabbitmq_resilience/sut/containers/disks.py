"""Give the data of a node in a container its own disk of a known size.

The disk is a volume in memory (tmpfs), which needs no rights on the machine. The engine drops such a volume when the
last container that uses it is gone. This would lose the data of a broker that died. So another container, the keeper,
keeps the volume, and runs the commands that fill, empty and wipe it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import docker

from rabbitmq_resilience.sut.containers.engine_errors import naming
from rabbitmq_resilience.sut.containers.execution import ContainerShell
from rabbitmq_resilience.sut.machine.fillable_folder import FillableFolder

_HERE = "/disk"
#: Prints the size of each file below $1 on a line.
_SIZES = r"""find "$1" -type f -printf '%s\n'"""
#: No fault lasts longer. With the run ends the keeper.
_FILLED_S_MAX = 10 * 86_400


class VolumeDisk:
    """The disk of one node. The volume and its keeper carry ``labels``, by which they are removed. Methods raise
    ``ClusterError``."""

    def __init__(
        self, client: docker.DockerClient, image: str, name: str, *, size_bytes: int, labels: Mapping[str, str]
    ) -> None:
        self.name = name
        user, group = os.getuid(), os.getgid()
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size_bytes},uid={user},gid={group},mode=0700"}
        with naming(f"the engine makes no volume {name} of {size_bytes} bytes"):
            client.volumes.create(name, driver="local", driver_opts=options, labels=dict(labels))
            keeper = client.containers.run(
                image,
                ["-f", "/dev/null"],
                entrypoint=["tail"],
                detach=True,
                name=f"{name}-keeper",
                labels=dict(labels),
                network_mode="none",
                user=f"{user}:{group}",
                volumes={name: {"bind": _HERE, "mode": "rw"}},
            )
        self._shell = ContainerShell(str(keeper.id), name)
        self._filled = FillableFolder(self._shell, _HERE, key=name)

    def fill(self) -> None:
        """Begin to fill the disk to the last block, and to keep it full: space that the broker frees later is filled
        too."""
        self._filled.fill(for_s=_FILLED_S_MAX)

    def empty(self) -> None:
        """Undo ``fill``."""
        self._filled.empty()

    def free_bytes(self) -> int:
        return self._filled.free_bytes()

    def takes(self) -> bool:
        """Return whether a block can be written now."""
        return self._filled.takes()

    def room_seen(self) -> str:
        """Return an empty text: this disk belongs to the broker alone, so the broker's report does not matter."""
        return ""

    def stored_bytes(self) -> int:
        return sum(map(int, self._shell.run(_SIZES, _HERE).split()))

    def wipe(self) -> None:
        self._shell.run('find "$1" -mindepth 1 -delete', _HERE)
