"""A disk of its own, and of a known size, for the data of a node in a container.

It is a volume in memory (tmpfs), as that needs no rights on the machine. The engine forgets such a volume when the last
container that has it is gone, which would lose what a broker that died had stored. So another container keeps it, and
does what is done to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import docker
from docker.errors import DockerException
from requests import RequestException

from rabbitmq_resilience.clusters.containers.execution import execute
from rabbitmq_resilience.clusters.errors import ClusterError

_HERE = "/disk"
#: No name that a broker gives to what it stores.
_FILLER = f"{_HERE}/filled-by-the-test"
_PROBE = f"{_HERE}/written-by-the-test"
#: In the keeper: as long as it is there, what a broker frees is taken again.
_FILLING = "/tmp/filling"  # noqa: S108 - in a container
_LOCK = "/tmp/filling.lock"  # noqa: S108 - in a container
_FILL_ON = f"while [ -e {_FILLING} ]; do cat /dev/zero >>{_FILLER}; sleep 0.1; done"
_END_FILLING = f"rm -f {_FILLING}; flock {_LOCK} rm -f {_FILLER}"
_BLOCK_BYTES = 4096
_FULL = "No space left on device"


class Disk:
    """Raises ``ClusterError``. The volume and its keeper carry ``labels``, by which they are removed."""

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
        """To the last block, and also with what the broker frees from now on: who fills a disk goes on with it."""
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
        """Whether a block can be written now; that it cannot, for want of space, is what the kernel answers."""
        try:
            return not self._written(_PROBE, "count=1")
        finally:
            self._run("rm", "-f", _PROBE)

    def room_seen(self) -> str:
        """It was made for the broker."""
        return ""

    def stored_bytes(self) -> int:
        return sum(map(int, self._run("find", _HERE, "-type", "f", "-printf", "%s\\n").split()))

    def wipe(self) -> None:
        self._run("find", _HERE, "-mindepth", "1", "-delete")

    def _written(self, path: str, *arguments: str) -> bool:
        """Writes zeros until they end, or the space does: whether it did."""
        orders = ("dd", "if=/dev/zero", f"of={path}", f"bs={_BLOCK_BYTES}", *arguments)
        status, told = self._exec(orders)
        if status != 0 and _FULL not in told:
            raise ClusterError(f"nothing could be written to {self.name}: {told.strip()}")
        return status != 0

    def _run(self, *command: str) -> str:
        status, told = self._exec(command)
        if status != 0:
            raise ClusterError(f"{command[0]} failed on {self.name}: {told.strip()}")
        return told

    def _exec(self, command: Sequence[str]) -> tuple[int, str]:
        done = execute(str(self._keeper.id), command, node=self.name, environ={"LC_ALL": "C"})
        return done.returncode, done.stdout + done.stderr
