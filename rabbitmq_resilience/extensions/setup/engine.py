"""Provide the container engine for set-up: use the one that answers, otherwise install and start Debian's."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager

import docker
from docker.errors import DockerException
from requests import RequestException

from rabbitmq_resilience.extensions.setup import dockerd
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, SetupTask
from rabbitmq_resilience.tools.docker_client import connect, reason
from rabbitmq_resilience.tools.progress import Failed

DEFAULT_ADDRESS = "unix:///var/run/docker.sock"

_ADDRESS = re.compile(r"unix:///.+|tcp://[^/]+:\d+/?")
ANSWER_S = 10

_MISSING = """\
A container engine is needed for images and containers, and could not be provided:
  {address}: {silence}
  installing and starting one: {why}
How to provide it:
  Debian, Ubuntu   the package docker.io, and its service started; or call this as root
  macOS, Windows   Docker Desktop, started
  elsewhere        any engine with Docker's API: DOCKER_HOST=unix:///path/to/docker.sock names it (rootless ones too)
A user who is not root has to belong to the group of the engine's socket (usually docker)."""


def address() -> str:
    """Return the address of the engine: DOCKER_HOST, else Docker's own default."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_ADDRESS


@contextmanager
def answering(*, within_s: int = ANSWER_S) -> Iterator[docker.DockerClient]:
    """Yield a client of the engine. ``within_s``: how long each request in the block may take.

    Raise ``Failed`` with the words of the engine, or with why it did not answer, at first or in the block.
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
    """Return version and address of the engine that answers, or None if none does.

    Raise ``Missing`` if DOCKER_HOST names an engine that does not answer."""
    try:
        with answering() as client:
            version = client.version()
    except Failed as error:
        if os.environ.get("DOCKER_HOST"):
            raise Missing(f"DOCKER_HOST names an engine that does not answer.\n{error}") from error
        return None
    kernel = version.get("KernelVersion", "unknown")
    return f"{version['Version']} (API {version['ApiVersion']}, Linux {kernel}) at {address()}"


def make() -> str:
    """Install and start Debian's engine; return its version and address. Raise ``Missing`` if that fails."""
    silence = _silence()
    try:
        if shutil.which("dockerd") is None:
            dockerd.install()
        if found() is None:  # the package may have started its service
            dockerd.start(DEFAULT_ADDRESS, answers=lambda: _silence() is None)
        used = found()
        if used is None:
            raise Failed("the engine was started, and does not answer any more")
    except Failed as error:
        why = str(error).replace("\n", "\n    ")
        raise Missing(_MISSING.format(address=address(), silence=silence or "the engine answered", why=why)) from error
    return used


def _silence() -> str | None:
    """Return why no engine answers, or None if one does."""
    try:
        with answering():
            return None
    except Failed as error:
        return str(error).removeprefix(f"{address()}: ")


STEP = SetupTask("Container engine", found, make)
