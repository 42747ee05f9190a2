"""Run the processes of an application: start them, watch them, kill them, and ask them to end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.model.access import Access, Endpoint
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.container_protocol import ProgramImages, StartedProgram
from rabbitmq_resilience.sut.protocol import Cluster
from rabbitmq_resilience.workload.application_model import ApplicationProcess, Variables
from rabbitmq_resilience.workload.process_guard import ProcessGuard
from rabbitmq_resilience.workload.work_lines import WORK_VARIABLE, work_path
from rabbitmq_resilience.workload.worker import WorkloadError

#: How much of the end of a process's output is recorded when it ends by itself.
LAST_LINES = 12
_LAST_BYTES = 64 << 10
#: A supervisor waits this long before it starts a process again.
RESTART_AFTER_S = 1.0

Record = Callable[..., object]


class LocalProgram:
    """A process of this machine, as ``container_protocol.StartedProgram``, and the group that it leads."""

    def __init__(self, command: Sequence[str], *, guard: ProcessGuard, **fields: Any) -> None:
        """Start it. ``fields`` are those of subprocess.Popen. Raise OSError if it cannot be run."""
        self._guard = guard
        # With a group of its own, Ctrl-C in a terminal goes to the parent only.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, **fields)
        self.pid = self._process.pid
        self.poll, self.wait = self._process.poll, self._process.wait
        guard.add(self.pid)

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill_all(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._guard.remove(self.pid)


class ApplicationInstance:
    """One process of the application. After a restart the next process takes its place. ``record`` gets the events of
    the kind "application". ``run_image`` starts the program of an image. ``pid``, ``ended``, ``kill`` and ``start`` are
    as those of ``worker.Worker``."""

    def __init__(
        self,
        name: str,
        stated: ApplicationProcess,
        environ: Mapping[str, str],
        log: Path,
        *,
        record: Record,
        guard: ProcessGuard,
        run_image: Callable[..., StartedProgram] | None = None,
    ) -> None:
        self.name = name
        self._run_image = run_image
        self._guard = guard
        self.stated = stated
        self._environ = environ
        self._log = log
        self._record = record
        self._lives = 0
        self._process: StartedProgram | None = None
        self._asked = False
        #: The lives that were killed, whose end is recorded where they are killed.
        self._killed: set[int] = set()
        self._watcher: threading.Thread | None = None
        #: How long the log was when the last process began.
        self._log_bytes = 0
        self._lock = threading.RLock()
        self._restart: threading.Timer | None = None

    @property
    def lives(self) -> int:
        """Return how often it was started."""
        return self._lives

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def pid(self) -> int | None:
        return None if self.ended or self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process. Raise WorkloadError if it cannot be run."""
        with self._lock:
            try:
                self._process = self._started()
            except (OSError, ClusterError) as error:
                raise WorkloadError(f"{self.name} cannot be run: {error}") from error
            self._asked = False
            self._say("started", pid=self._process.pid)
            self._watcher = threading.Thread(target=self._watch, args=(self._process, self._lives), daemon=True)
            self._watcher.start()
            self._lives += 1

    def _started(self) -> StartedProgram:
        command, folder = self.stated.arguments(self.name), self.stated.folder
        work = work_path(self._log.parent, self.name, self._lives)
        environ = {**self.stated.environ, **self._environ, WORK_VARIABLE: str(work)}
        with self._log.open("ab") as log:
            self._log_bytes = log.tell()
            if self.stated.image is None:
                everything = {**os.environ, **environ}
                return LocalProgram(command, guard=self._guard, cwd=folder, env=everything, stdout=log, stderr=log)
        assert self._run_image is not None, "the application is run on a cluster"
        work.touch()
        work.chmod(0o666)  # the image decides who writes
        return self._run_image(self.stated.image, command, environ, folder=folder, writable=[work], log=self._log)

    def _watch(self, process: StartedProgram, life: int) -> None:
        """Record how the process ends, and start it again if it is restarted."""
        status = process.wait()
        with self._lock:
            if life in self._killed:
                return
            event = "stopped" if self._asked else "ended"
            self._say(event, life=life, status=status, detail="" if self._asked else self._last_lines())
            if not self._asked:
                process.kill_all()  # what it has started and left
            if not self._asked and self.stated.restarted:
                self._restart = threading.Timer(RESTART_AFTER_S, self._start_again)
                self._restart.daemon = True
                self._restart.start()

    def _start_again(self) -> None:
        with self._lock:
            if not self._asked and self.ended:
                with suppress(WorkloadError):
                    self.start()

    def kill(self) -> None:
        """Kill the process and what it has started, and wait for its end."""
        with self._lock:
            if self._process is None or self.ended:
                raise WorkloadError(f"{self.name} does not run")
            self._killed.add(self._lives - 1)
            self._process.kill_all()
            self._process.wait()
            self._say("killed", life=self._lives - 1)

    def ask_to_end(self) -> None:
        """Send the signal by which it is asked to end."""
        with self._lock:
            self._asked = True
            if self._restart is not None:
                self._restart.cancel()
            if not self.ended and self._process is not None:
                self._process.send_signal(getattr(signal, f"SIG{self.stated.stop_signal}"))

    def await_end(self, *, timeout_s: float) -> bool:
        """Wait until the process has ended, and kill it if it does not. Return whether it ended by itself."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            with self._lock:
                self._killed.add(self._lives - 1)
                self._process.kill_all()
                self._process.wait()
                self._say("hung", life=self._lives - 1, detail=f"it did not end within {timeout_s:g} s")
            return False
        if self._watcher is not None:
            self._watcher.join()  # it records the end
        self._process.kill_all()
        return True

    def close(self) -> None:
        """End the process and all that it has started, at once."""
        with self._lock:
            self._asked = True
            self._killed.add(self._lives - 1)
            if self._restart is not None:
                self._restart.cancel()
            if self._process is not None:
                self._process.kill_all()
                self._process.wait()

    def _last_lines(self) -> str:
        """Return the end of what the last process has written."""
        with self._log.open("rb") as log:
            log.seek(max(self._log_bytes, log.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])

    def _say(self, event: str, **fields: Any) -> None:
        self._record("application", t_us=now_us(), process=self.name, event=event, **{"life": self._lives, **fields})


def run_image(cluster: Cluster, authority: Path, image: str, *started: Any, **where: Any) -> StartedProgram:
    """Start the program of an image, see ``ProgramImages``. It finds the ``authority`` of the tap's certificate at the
    same path, if there is one. Raise ClusterError if it cannot be run."""
    if not isinstance(cluster, ProgramImages):
        raise ClusterError(f"the driver {cluster.driver} runs no images")
    readable = [authority] if authority.exists() else []
    return cluster.run_image(image, *started, readable=readable, **where)


def environment_of(
    variables: Variables, access: Access, vhost: str, endpoints: Mapping[str, Endpoint]
) -> Mapping[str, str]:
    """Return the variables that lead a process to its brokers, the first endpoint first. ``access`` is for these
    endpoints, not for the brokers behind them."""
    user, password, path = (quote(part, safe="") for part in (access.user, access.password, vhost))
    urls = [
        f"amqp{'s' * bool(at.tls_name)}://{user}:{password}@{at.host}:{at.port}/{path}" for at in endpoints.values()
    ]
    first = next(iter(endpoints.values()))
    return {
        variables.url: urls[0],
        variables.urls: ",".join(urls),
        variables.host: first.host,
        variables.port: str(first.port),
        variables.vhost: vhost,
        variables.user: access.user,
        variables.password: access.password,
        **({variables.ca_file: access.ca} if first.tls_name and access.ca else {}),
    }


def end_all(instances: Mapping[str, ApplicationInstance]) -> None:
    """End every process at once, even if ending one of them fails."""
    with ExitStack() as each:
        for instance in instances.values():
            each.callback(instance.close)
