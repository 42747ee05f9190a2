"""One broker as a child process: how its Erlang machine is started, signalled and ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping

import psutil

from topologies.cluster import ClusterError, ProcessState
from topologies.files import BrokerFiles
from topologies.waiting import WaitTimeout, wait_until


class BrokerProcess:
    """The process of one node; it can be started again after it has ended."""

    def __init__(self, node: str, command: list[str], environ: Mapping[str, str], files: BrokerFiles) -> None:
        self.node = node
        self.files = files
        self._command = command
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._output_begins = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def exit_status(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def state(self) -> ProcessState:
        pid = self.pid
        if pid is None:
            return "gone"
        try:
            return "suspended" if psutil.Process(pid).status() == psutil.STATUS_STOPPED else "running"
        except psutil.NoSuchProcess:
            return "gone"

    @property
    def has_booted(self) -> bool:
        return self.files.says_booted(since=self._output_begins)

    def start(self) -> None:
        if self.pid is not None:
            raise ClusterError(f"{self.node} cannot be started: process {self.pid} is still there")
        self.files.traffic.unlink(missing_ok=True)
        with self.files.output.open("ab") as output:
            self._output_begins = output.tell()
            self._process = subprocess.Popen(
                self._command,
                env=self._environ,
                cwd=self.files.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._await_end(timeout_s=10.0)

    def stop(self, *, timeout_s: float) -> None:
        """SIGTERM, on which the Erlang machine shuts the broker down in order."""
        self._signal(signal.SIGTERM)
        self._await_end(timeout_s=timeout_s)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self._await_state("suspended")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._await_state("running")

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is None:
            raise ClusterError(f"{self.node} cannot be sent {number.name}: its process is gone")
        os.kill(pid, number)

    def _await_state(self, wanted: ProcessState) -> None:
        try:
            wait_until(
                self.state, timeout_s=5.0, poll_s=0.01, what=f"{self.node} to be {wanted}", until=lambda s: s == wanted
            )
        except WaitTimeout as error:
            raise ClusterError(str(error)) from error

    def _await_end(self, *, timeout_s: float) -> None:
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"{self.node} (process {self._process.pid}) did not end within {timeout_s:g} s; see {self.files.log}"
            ) from error
