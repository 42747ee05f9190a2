"""Claim a folder and a block of two hundred ports for a cluster on this machine.

The process that holds the lock file ``<root>/<base>.lock`` owns the folder ``<root>/<base>`` and the ports from
``base`` on. The kernel drops the lock when the last process that holds it is gone. So a folder with a free lock was
left behind by a run that died. Only such folders are removed.

Locks are valid within one root only, and another user has another root. A paused broker has closed its ports, so a run
with another root would find them free. So the claim also binds the block's first port for UDP. No program here uses
UDP, and every process on the machine sees that the port is taken.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.machine.reaper import remove_cluster

LOOPBACK = "127.0.0.1"
BLOCK_PORTS = 200
#: Below the ports that systems hand out to clients (from 32768 on Linux, 49152 on macOS).
FIRST_BASES = range(20_000, 32_000, BLOCK_PORTS)


@dataclass(frozen=True)
class Claim:
    """A claimed folder and block of ports. The open files ``claim_fds`` keep the claim; the reaper inherits them."""

    folder: Path
    base_port: int
    claim_fds: tuple[int, ...]

    @property
    def lock_file(self) -> Path:
        return self.folder.with_suffix(".lock")


def default_root() -> Path:
    """Return the folder of this user's clusters. Only this user may read it, as it holds cookies. Raise ClusterError if
    others may."""
    root = Path(tempfile.gettempdir()) / f"rabbitmq-resilience-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid() or root.stat().st_mode & 0o077:
        raise ClusterError(f"{root} is not a folder that only this user can enter; remove it")
    return root


def take_claim(root: Path, *, ports: int) -> Claim:
    """Claim the first block whose first ``ports`` ports are free on all addresses. Raise ClusterError if there is
    none."""
    if ports > BLOCK_PORTS:
        raise ClusterError(f"a cluster needs {ports} ports, a block has {BLOCK_PORTS}")
    sweep(root)
    for base in FIRST_BASES:
        lock_fd = _lock(root / f"{base}.lock")
        if lock_fd is None:
            continue
        claim = Claim(root / str(base), base, (lock_fd,))
        try:
            guard_fd = _guard(base)
            if guard_fd is not None:
                claim = replace(claim, claim_fds=(lock_fd, guard_fd))
                if all(_is_free(port) for port in range(base, base + ports)):
                    with suppress(FileExistsError):  # the leftovers of a dead run could not be removed
                        claim.folder.mkdir(mode=0o700)
                        return claim
        except BaseException:
            release(claim)
            raise
        release(claim)
    raise ClusterError(f"no block of {ports} free ports between {FIRST_BASES.start} and {FIRST_BASES.stop}")


def sweep(root: Path) -> list[Path]:
    """End and remove the leftovers of runs that died, and nothing else. Return the removed folders."""
    return [claim.folder for claim in _leftovers(root)]


def _leftovers(root: Path) -> Iterator[Claim]:
    for folder in sorted(path for path in root.glob("[0-9]*[0-9]") if path.name.isdecimal()):
        lock_fd = _lock(folder.with_suffix(".lock"))
        if lock_fd is None:
            continue
        claim = Claim(folder, int(folder.name), (lock_fd,))
        try:
            if folder.is_dir():
                remove_cluster(folder)
                yield claim
        finally:
            release(claim)


def _lock(path: Path) -> int | None:
    """Lock ``path`` and return its descriptor. Return None if another process holds the lock, or has just removed
    the file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _guard(base: int) -> int | None:
    """Bind the UDP port and return its descriptor. Return None if another process holds it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as guard:
        try:
            guard.bind((LOOPBACK, base))
        except OSError:
            return None
        return os.dup(guard.fileno())


def release(claim: Claim) -> None:
    """Give up a claim that is not in use: remove its lock file and close its open files."""
    try:
        claim.lock_file.unlink(missing_ok=True)
    finally:
        for descriptor in claim.claim_fds:
            os.close(descriptor)


def _is_free(port: int) -> bool:
    """Return whether a port is free on all addresses. A broker refuses to boot if one address is taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            return False
        return True
