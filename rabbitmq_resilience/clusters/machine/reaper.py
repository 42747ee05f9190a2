"""Ends the processes of one cluster and removes its folder, whatever became of the test run.

Runs as a process of its own in a session of its own (``python -m rabbitmq_resilience.clusters.machine.reaper``), so
neither Ctrl-C at the terminal nor ``kill -9`` of the test run touches it. It acts when its standard input gets a byte
or ends, or when its parent is gone: processes forked by the parent may keep the pipe open.
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

#: Every process of a cluster carries this variable with the cluster's folder, and is found by it.
MARK = "RESILIENCE_CLUSTER"

#: A cluster that has more than processes names in this file of its folder the module that removes the rest: it is run
#: with the folder as its argument, and its exit status is 0 if nothing is left.
ENDED_BY = "ended-by"

_PARENT_POLL_S = 0.5
_CLOSE_TIMEOUT_S = 20.0


class Reaper:
    """The parent's end: starts the reaper of a cluster's folder, and has it do its work on ``close``.

    The reaper shares the claim of the place (``clusters.machine.claims``) until all is removed, so no other run
    takes it before.
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
        """Returns when the processes and the folder are gone."""
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
    """``environ`` with the mark by which a process is known to belong to the cluster in ``folder``."""
    return {**environ, MARK: str(folder)}


def remove_cluster(folder: Path, *, timeout_s: float = 10.0) -> None:
    """SIGKILL every process that carries the mark of ``folder``, have the rest removed, then the folder."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        killed = _kill_marked(folder)
        if (folder / ENDED_BY).exists() and not _the_rest_is_gone(folder):
            return  # its folder stays, so that they are found again
        shutil.rmtree(folder, ignore_errors=True)
        if not killed and not folder.exists():
            return
        time.sleep(0.02)  # a process that was just killed needs a moment


def reap(folder: Path, lock_file: Path) -> None:
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
    """Have the driver remove what are no processes of this machine; whether that worked."""
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
