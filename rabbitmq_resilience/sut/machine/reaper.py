"""End the processes of one cluster and remove its folder, even if the test run crashes.

The reaper is a separate process in its own session (``python -m rabbitmq_resilience.sut.machine.reaper``). So
neither Ctrl-C at the terminal nor ``kill -9`` of the test run reaches it. It acts when its standard input gets a byte
or ends. It also acts when its parent is gone, because processes forked by the parent may keep the pipe open.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rabbitmq_resilience.tools.locations import IMPORTED_FROM

#: Every process of a cluster has this environment variable with the cluster's folder. The reaper finds it by that.
MARK = "RESILIENCE_CLUSTER"

#: A cluster with more than processes has this file in its folder. It names the module that removes the rest. The module
#: runs with the folder as its argument; its exit status is 0 if nothing is left.
ENDED_BY = "ended-by"

_PARENT_POLL_S = 0.5
_CLOSE_TIMEOUT_S = 20.0


class Reaper:
    """The parent's handle of a reaper: it starts the reaper of a cluster's folder, and triggers it on ``close``.

    The reaper shares the claim (``sut.machine.port_claims``) until everything is removed, so that no other run takes
    the folder before.
    """

    def __init__(self, folder: Path, lock_file: Path, claim_fds: Sequence[int]) -> None:
        self._folder = folder
        self._lock_file = lock_file
        self._claim_fds = tuple(claim_fds)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(os.getpid()), str(folder), str(lock_file)],
                cwd=IMPORTED_FROM,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=self._claim_fds,
                start_new_session=True,
            )
        except OSError:
            for descriptor in self._claim_fds:
                os.close(descriptor)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Let the reaper act. Return when the processes and the folder are gone."""
        try:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._process.communicate(b"\n", timeout=_CLOSE_TIMEOUT_S)
            if self._process.poll() != 0:
                self._process.kill()
                self._process.communicate()
                reap(self._folder, self._lock_file)
        finally:
            for descriptor in self._claim_fds:
                os.close(descriptor)


def marked(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return ``environ`` with the mark that assigns a process to the cluster in ``folder``."""
    return {**environ, MARK: str(folder)}


def remove_cluster(folder: Path, *, timeout_s: float = 10.0) -> None:
    """Send SIGKILL to every process with the mark of ``folder``, remove the rest, then remove the folder. Give up after
    ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        killed = _kill_marked(folder)
        if (folder / ENDED_BY).exists() and not _the_rest_is_gone(folder):
            return  # the folder stays, so that a later run finds the rest
        shutil.rmtree(folder, ignore_errors=True)
        if not killed and not folder.exists():
            return
        time.sleep(0.02)  # a killed process needs a moment to end


def reap(folder: Path, lock_file: Path) -> None:
    """Remove the cluster in ``folder``, and its lock file if the folder is gone."""
    remove_cluster(folder)
    if not folder.exists():
        lock_file.unlink(missing_ok=True)


def _kill_marked(folder: Path) -> int:
    import psutil  # noqa: PLC0415 - the reaper stays small until it is needed

    killed = 0
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == str(folder):
                process.kill()
                killed += 1
        except psutil.Error:
            continue
    return killed


def _the_rest_is_gone(folder: Path) -> bool:
    """Let the driver's module remove everything that is no process of this machine. Return whether that worked."""
    module = (folder / ENDED_BY).read_text(encoding="utf-8").strip()
    ended = subprocess.run(
        [sys.executable, "-m", module, str(folder)],
        cwd=IMPORTED_FROM,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return ended.returncode == 0


def _await_end_of_run(parent: int) -> None:
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], _PARENT_POLL_S)
        if readable:
            return


def main(parent: int, folder: Path, lock_file: Path) -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    _await_end_of_run(parent)
    reap(folder, lock_file)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
