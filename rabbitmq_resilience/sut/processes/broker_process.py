"""Start, signal and end brokers and programs as child processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.broker.files import BrokerFiles
from rabbitmq_resilience.sut.node_protocol import ProcessState
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until


class ProcessPlace:
    """The process of one broker or program, which can be started again after it has ended. Its output is appended to
    ``output``. Error messages refer to ``log``. Methods raise ``ClusterError``."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        folder: Path,
        output: Path,
        log: Path | None = None,
    ) -> None:
        self.name = name
        self._command = list(command)
        self._environ = dict(environ)
        self._folder = folder
        self._output = output
        self._log = log or output
        self._process: subprocess.Popen[bytes] | None = None
        self._output_begins = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def life(self) -> str | None:
        return None if self.pid is None else f"process {self.pid}"

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

    def start(self) -> None:
        if self.pid is not None:
            raise ClusterError(f"{self.name} cannot be started: process {self.pid} is still there")
        with self._output.open("ab") as output:
            self._output_begins = output.tell()
            self._process = subprocess.Popen(
                self._command,
                env=self._environ,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._await_end(timeout_s=10.0)

    def stop(self, *, timeout_s: float) -> None:
        """Send SIGTERM, on which the Erlang VM shuts the broker down gracefully. Return when the process is gone."""
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
            raise ClusterError(f"{self.name} cannot be sent {number.name}: its process is gone")
        os.kill(pid, number)

    def _await_state(self, wanted: ProcessState) -> None:
        try:
            wait_until(
                self.state, timeout_s=5.0, poll_s=0.01, what=f"{self.name} to be {wanted}", until=lambda s: s == wanted
            )
        except WaitTimeout as error:
            raise ClusterError(str(error)) from error

    def _await_end(self, *, timeout_s: float) -> None:
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"{self.name} (process {self._process.pid}) did not end within {timeout_s:g} s; see {self._log}"
            ) from error


class BrokerProcess(ProcessPlace):
    """The process of one node."""

    def __init__(self, node: str, command: Sequence[str], environ: Mapping[str, str], files: BrokerFiles) -> None:
        super().__init__(node, command, environ, folder=files.folder, output=files.output, log=files.log)
        self._files = files

    @property
    def has_booted(self) -> bool:
        return self._files.says_booted(since=self._output_begins)

    def start(self) -> None:
        if self.pid is None:
            self._files.traffic.unlink(missing_ok=True)
        super().start()
