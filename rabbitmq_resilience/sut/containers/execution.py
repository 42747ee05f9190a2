"""Run commands inside running containers.

A command's output may be lost, on a busy machine 6 of 150 times. Docker's client reads the socket directly, below the
buffer that has read the head of the answer. Bytes that came with the head are then lost, or a frame is cut
(``APIClient._get_raw_response_socket``, docker 7.2). So each command prints a marker at its beginning and its end. If a
marker is missing, the command runs again. Therefore commands must be safe to run twice.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.containers.engine_client import connected
from rabbitmq_resilience.sut.containers.engine_errors import naming

_BEGIN, _END = "\x02begun\x02", "\x04ended\x04"
_SCRIPT = (
    f'printf %s {_BEGIN}; printf %s {_BEGIN} >&2; "$@"; status=$?; printf %s {_END}; printf %s {_END} >&2; exit $status'
)
_TIMES_MAX = 5


@dataclass(frozen=True)
class ContainerShell:
    """The shell of the running container with the id ``container``, as a ``MachineShell``. Scripts must be safe to run
    twice. ``name`` is the container's in messages."""

    container: str
    name: str

    @property
    def description(self) -> str:
        return f"the container of {self.name}"

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        bounded = ["timeout", "-s", "KILL", f"{timeout_s:g}", "sh", "-c", script, "sh", *arguments]
        done = execute(self.container, bounded, node=self.name, environ={"LC_ALL": "C"})
        if done.returncode != 0:
            words = (done.stderr or done.stdout).strip()[:1000] or "it printed nothing"
            raise ClusterError(f"{self.description}: a script failed with status {done.returncode}: {words}")
        return done.stdout


def execute(
    container: str,
    command: Sequence[str],
    *,
    node: str,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end in the container with the id ``container``. ``node`` is its name in messages. Raise
    ``ClusterError`` if the command cannot be run, or if its output is lost each time."""
    for _ in range(_TIMES_MAX):
        done = _executed(container, command, node, environ or {}, folder)
        if done is not None and all(_is_whole(text) for text in (done.stdout, done.stderr)):
            out, err = (text.removeprefix(_BEGIN).removesuffix(_END) for text in (done.stdout, done.stderr))
            return subprocess.CompletedProcess(command, done.returncode, out, err)
    raise ClusterError(f"the output of {command[0]} for {node} was lost, {_TIMES_MAX} times in a row")


def _is_whole(text: str) -> bool:
    return text.startswith(_BEGIN) and text.endswith(_END)


def _executed(
    container: str, command: Sequence[str], node: str, environ: Mapping[str, str], folder: Path | None
) -> subprocess.CompletedProcess[str] | None:
    """Run the command once, with markers. Return None if its output cannot be read."""
    whole, workdir = ["sh", "-c", _SCRIPT, "sh", *command], str(folder) if folder else None
    try:
        # A new client, as several threads of this process run commands at once.
        with naming(f"{command[0]} could not be run for {node}"), connected() as client:
            execution = client.api.exec_create(container, whole, environment=dict(environ), workdir=workdir)["Id"]
            streams = client.api.exec_start(execution, demux=True)
            status = client.api.exec_inspect(execution)["ExitCode"]
    except ValueError:  # a frame was cut
        return None
    if status is None:
        raise ClusterError(f"{command[0]} for {node} has no exit status: its container ended first")
    out, err = ((stream or b"").decode(errors="replace") for stream in streams)
    return subprocess.CompletedProcess(command, status, out, err)
