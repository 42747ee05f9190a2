"""Commands inside containers that run already.

The engine may lose what a command prints: its exit status comes, and nothing else (Docker Engine 20.10.24 on a busy
machine: 6 of 150 times). So a command says with its last bytes that it has ended, and is run again where these are
missing. What is run here must therefore be such that it may be run twice.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from docker.errors import DockerException
from requests import RequestException

from topologies.cluster import ClusterError
from topologies.engine import connect

_END = "\x04ended\x04"
_SCRIPT = f'"$@"; status=$?; printf %s {_END}; printf %s {_END} >&2; exit $status'
_TIMES_MAX = 5


def execute(
    container: str,
    command: Sequence[str],
    *,
    node: str,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end in the container of that id, which belongs to ``node`` (for people). Raises
    ``ClusterError``."""
    for _ in range(_TIMES_MAX):
        done = _executed(container, command, node, environ or {}, folder)
        if done.stdout.endswith(_END) and done.stderr.endswith(_END):
            out, err = (text.removesuffix(_END) for text in (done.stdout, done.stderr))
            return subprocess.CompletedProcess(command, done.returncode, out, err)
    raise ClusterError(f"the engine lost what {command[0]} printed for {node}, {_TIMES_MAX} times in a row")


def _executed(
    container: str, command: Sequence[str], node: str, environ: Mapping[str, str], folder: Path | None
) -> subprocess.CompletedProcess[str]:
    whole, workdir = ["sh", "-c", _SCRIPT, "sh", *command], str(folder) if folder else None
    try:
        with closing(connect()) as client:  # of its own: several threads of this process run commands at once
            execution = client.api.exec_create(container, whole, environment=dict(environ), workdir=workdir)["Id"]
            streams = client.api.exec_start(execution, demux=True)
            status = client.api.exec_inspect(execution)["ExitCode"]
    except (DockerException, RequestException) as error:
        raise ClusterError(f"{command[0]} could not be run for {node}: {error}") from error
    if status is None:
        raise ClusterError(f"{command[0]} did not end for {node}: its container did")
    out, err = ((stream or b"").decode(errors="replace") for stream in streams)
    return subprocess.CompletedProcess(command, status, out, err)
