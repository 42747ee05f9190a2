"""Give the data of a node in a container its own disk of a known size.

The disk is a volume in memory (tmpfs), which needs no rights on the machine. The engine drops such a volume when the
last container that uses it is gone. This would lose the data of a broker that died. So another container, the keeper,
keeps the volume, and runs the commands that fill, empty and wipe it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import docker
from docker.errors import DockerException
from requests import RequestException

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.containers.execution import execute

_HERE = "/disk"
#: File names that no broker uses.
_FILLER = f"{_HERE}/filled-by-the-test"
_PROBE = f"{_HERE}/written-by-the-test"
#: A file in the keeper. While it exists, space that the broker frees is filled again.
_FILLING = "/tmp/filling"  # noqa: S108 - in a container
_LOCK = "/tmp/filling.lock"  # noqa: S108 - in a container
_FILL_ON = f"while [ -e {_FILLING} ]; do cat /dev/zero >>{_FILLER}; sleep 0.1; done"
_END_FILLING = f"rm -f {_FILLING}; flock {_LOCK} rm -f {_FILLER}"
_BLOCK_BYTES = 4096
_FULL = "No space left on device"


class VolumeDisk:
    """The disk of one node. The volume and its keeper carry ``labels``, by which they are removed. Methods raise
    ``ClusterError``."""

    def __init__(
        self, client: docker.DockerClient, image: str, name: str, *, size_bytes: int, labels: Mapping[str, str]
    ) -> None:
        self.name = name
        user, group = os.getuid(), os.getgid()
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size_bytes},uid={user},gid={group},mode=0700"}
        try:
            client.volumes.create(name, driver="local", driver_opts=options, labels=dict(labels))
            self._keeper = client.containers.run(
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
        except (DockerException, RequestException) as error:
            raise ClusterError(f"the engine makes no volume {name} of {size_bytes} bytes: {error}") from error

    def fill(self) -> None:
        """Fill the disk to the last block, and keep it full: space that the broker frees later is filled too."""
        self._written(_FILLER)
        self._run("touch", _FILLING)
        try:
            self._keeper.exec_run(["flock", _LOCK, "sh", "-c", _FILL_ON], detach=True)
        except (DockerException, RequestException) as error:
            raise ClusterError(f"{self.name} cannot be kept full: {error}") from error

    def empty(self) -> None:
        """Undo ``fill``."""
        self._run("sh", "-c", _END_FILLING)

    def free_bytes(self) -> int:
        blocks, size = self._run("stat", "-f", "-c", "%a %S", _HERE).split()
        return int(blocks) * int(size)

    def takes(self) -> bool:
        """Return whether a block can be written now. Only the kernel's answer ENOSPC counts as no."""
        try:
            return not self._written(_PROBE, "count=1")
        finally:
            self._run("rm", "-f", _PROBE)

    def room_seen(self) -> str:
        """Return an empty text: this disk belongs to the broker alone, so the broker's report does not matter."""
        return ""

    def stored_bytes(self) -> int:
        return sum(map(int, self._run("find", _HERE, "-type", "f", "-printf", "%s\\n").split()))

    def wipe(self) -> None:
        self._run("find", _HERE, "-mindepth", "1", "-delete")

    def _written(self, path: str, *arguments: str) -> bool:
        """Write zeros to ``path`` until dd has written all, or the disk is full. Return whether the disk is full."""
        orders = ("dd", "if=/dev/zero", f"of={path}", f"bs={_BLOCK_BYTES}", *arguments)
        status, output = self._exec(orders)
        if status != 0 and _FULL not in output:
            raise ClusterError(f"nothing could be written to {self.name}: {output.strip()}")
        return status != 0

    def _run(self, *command: str) -> str:
        status, output = self._exec(command)
        if status != 0:
            raise ClusterError(f"{command[0]} failed on {self.name}: {output.strip()}")
        return output

    def _exec(self, command: Sequence[str]) -> tuple[int, str]:
        done = execute(str(self._keeper.id), command, node=self.name, environ={"LC_ALL": "C"})
        return done.returncode, done.stdout + done.stderr
