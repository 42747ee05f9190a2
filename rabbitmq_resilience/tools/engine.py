"""The container engine that set-up uses: the one that answers, otherwise Debian's, installed and started."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager

import docker
from docker.errors import DockerException
from requests import RequestException

from rabbitmq_resilience.tools import dockerd
from rabbitmq_resilience.tools.docker_client import connect, reason
from rabbitmq_resilience.tools.progress import Failed
from rabbitmq_resilience.tools.steps import Missing, Step

DEFAULT_ADDRESS = "unix:///var/run/docker.sock"

_ADDRESS = re.compile(r"unix:///.+|tcp://[^/]+:\d+/?")
ANSWER_S = 10

_MISSING = """\
A container engine is needed for images and containers, and could not be had:
  {address}: {silence}
  installing and starting one: {why}
How to provide it:
  Debian, Ubuntu   the package docker.io, and its service started; or call this as root
  macOS, Windows   Docker Desktop, started
  elsewhere        any engine with Docker's API: DOCKER_HOST=unix:///path/to/docker.sock names it (rootless ones too)
A user who is not root has to belong to the group of the engine's socket (usually docker)."""


def address() -> str:
    """Where the engine is looked for: DOCKER_HOST, else Docker's own default."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_ADDRESS


@contextmanager
def answering(*, within_s: int = ANSWER_S) -> Iterator[docker.DockerClient]:
    """The engine, for as long as the block lasts; ``within_s`` is how long it may take for what the block asks of it.

    Raises ``Failed`` with what the engine said, or why it did not answer: at first, or in the block.
    """
    place = address()
    if not _ADDRESS.fullmatch(place) or (place.startswith("tcp:") and os.environ.get("DOCKER_TLS_VERIFY")):
        raise Failed(f"{place}: set-up speaks to engines at unix:///path or tcp://host:port, and not over TLS or ssh")
    try:
        with closing(connect(place, answer_within_s=ANSWER_S)) as client:
            client.api.timeout = within_s
            yield client
    except (DockerException, RequestException) as error:
        raise Failed(f"{place}: {reason(error)}") from error


def found() -> str | None:
    """Version and address of the engine that answers. Raises ``Missing`` if one is named that does not."""
    try:
        with answering() as client:
            told = client.version()
    except Failed as error:
        if os.environ.get("DOCKER_HOST"):
            raise Missing(f"DOCKER_HOST names an engine that does not answer.\n{error}") from error
        return None
    kernel = told.get("KernelVersion", "unknown")
    return f"{told['Version']} (API {told['ApiVersion']}, Linux {kernel}) at {address()}"


def make() -> str:
    silence = _silence()
    try:
        if shutil.which("dockerd") is None:
            dockerd.install()
        if found() is None:  # the package may have started its service
            dockerd.start(DEFAULT_ADDRESS, answers=lambda: _silence() is None)
        used = found()
        if used is None:
            raise Failed("it was started and went silent")
    except Failed as error:
        why = str(error).replace("\n", "\n    ")
        raise Missing(_MISSING.format(address=address(), silence=silence or "it answered", why=why)) from error
    return used


def _silence() -> str | None:
    """Why no engine is to be found; None where one is."""
    try:
        with answering():
            return None
    except Failed as error:
        return str(error).removeprefix(f"{address()}: ")


STEP = Step("Container engine", found, make)
