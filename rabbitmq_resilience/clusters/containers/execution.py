"""Commands inside containers that run already.

What a command prints may be lost, on a busy machine 6 of 150 times: docker's client reads below the buffer by which it
read the head of the answer, and what came with that head is gone, or cut in the middle of a frame
(``APIClient._get_raw_response_socket``, docker 7.2). So a command says with its first and its last bytes that these are
its first and its last, and is run again where they are missing. What is run here must therefore be such that it may be
run twice.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from docker.errors import DockerException

from rabbitmq_resilience.clusters.containers.engine import connected
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.tools.distributions import ToolMissingError

_BEGIN, _END = "\x02begun\x02", "\x04ended\x04"
_SCRIPT = (
    f'printf %s {_BEGIN}; printf %s {_BEGIN} >&2; "$@"; status=$?; printf %s {_END}; printf %s {_END} >&2; exit $status'
)
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
        if done is not None and all(_is_whole(text) for text in (done.stdout, done.stderr)):
            out, err = (text.removeprefix(_BEGIN).removesuffix(_END) for text in (done.stdout, done.stderr))
            return subprocess.CompletedProcess(command, done.returncode, out, err)
    raise ClusterError(f"what {command[0]} printed for {node} was lost, {_TIMES_MAX} times in a row")


def _is_whole(text: str) -> bool:
    return text.startswith(_BEGIN) and text.endswith(_END)


def _executed(
    container: str, command: Sequence[str], node: str, environ: Mapping[str, str], folder: Path | None
) -> subprocess.CompletedProcess[str] | None:
    """None if it cannot be read what it printed."""
    whole, workdir = ["sh", "-c", _SCRIPT, "sh", *command], str(folder) if folder else None
    try:
        with connected() as client:  # of its own: several threads of this process run commands at once
            execution = client.api.exec_create(container, whole, environment=dict(environ), workdir=workdir)["Id"]
            streams = client.api.exec_start(execution, demux=True)
            status = client.api.exec_inspect(execution)["ExitCode"]
    except ValueError:  # the rest of a frame that was cut
        return None
    except (DockerException, OSError, ToolMissingError) as error:
        raise ClusterError(f"{command[0]} could not be run for {node}: {error}") from error
    if status is None:
        raise ClusterError(f"{command[0]} did not end for {node}: its container did")
    out, err = ((stream or b"").decode(errors="replace") for stream in streams)
    return subprocess.CompletedProcess(command, status, out, err)
