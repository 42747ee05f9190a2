"""Run a program of an image next to a cluster of containers, in the network of this machine."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Collection, Mapping, Sequence
from http.client import CONFLICT, NOT_FOUND
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException, NotFound
from requests import RequestException

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.tools.docker_client import reason

#: The status of a program whose end the engine did not report.
UNKNOWN_STATUS = -1


class ProgramContainer:
    """A program of an image, from its start to its end, as ``container_protocol.StartedProgram``. Its container is
    removed once it has ended; with the labels of a cluster it is removed with that at the latest."""

    def __init__(
        self,
        client: docker.DockerClient,
        image: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        folder: Path | None,
        readable: Collection[Path],
        writable: Collection[Path],
        labels: Mapping[str, str],
        log: Path,
    ) -> None:
        """Start the program. An engine that lacks its image pulls it. Raise ClusterError if it cannot be started."""
        fields: dict[str, Any] = {} if folder is None else {"working_dir": str(folder)}
        shown = sorted({*readable, *([folder] if folder is not None else [])})
        modes = dict.fromkeys(shown, "ro") | dict.fromkeys(writable, "rw")
        fields["volumes"] = {str(path): {"bind": str(path), "mode": mode} for path, mode in modes.items()}
        fields |= {"environment": dict(environ), "labels": dict(labels)}
        try:
            self._container = client.containers.run(
                image,
                list(command) or None,
                detach=True,
                network_mode="host",  # the tap listens on this machine's loopback
                **fields,
            )
            self._container.reload()
        except (DockerException, RequestException) as error:
            raise ClusterError(f"the engine does not run {image}: {reason(error)}") from error
        self.pid = int(self._container.attrs["State"]["Pid"])
        self._image = image
        self._status = UNKNOWN_STATUS
        self._ended = threading.Event()
        threading.Thread(target=self._follow, args=(log,), daemon=True).start()

    def _follow(self, log: Path) -> None:
        """Write what the program prints while it runs, then keep its status, and remove its container."""
        with log.open("ab", buffering=0) as file:
            try:
                for piece in self._container.logs(stream=True, follow=True):
                    file.write(piece)
                self._status = int(self._container.wait()["StatusCode"])
                self._container.remove(force=True, v=True)
            except NotFound:
                pass  # its cluster was removed first
            except (DockerException, RequestException) as error:
                file.write(f"the engine does not follow it any longer: {reason(error)}\n".encode())
            finally:
                self._ended.set()

    def poll(self) -> int | None:
        return self._status if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(self._image, timeout)
        return self._status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended. Raise ClusterError if the engine does not do it."""
        try:
            self._container.kill(signal=signal.Signals(number).name)
        except (DockerException, RequestException) as error:
            if getattr(error, "status_code", None) not in {NOT_FOUND, CONFLICT}:
                raise ClusterError(f"the engine sends no signal to {self._image}: {reason(error)}") from error

    def kill_all(self) -> None:
        self.send_signal(signal.SIGKILL)
