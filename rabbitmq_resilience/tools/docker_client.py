"""Connects docker's client to a container engine. Whoever answers, or does not, no socket is left open."""

from __future__ import annotations

import math
import socket
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlsplit

import docker
from docker.constants import MINIMUM_DOCKER_API_VERSION
from docker.errors import APIError, DockerException
from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection

#: What docker's client makes of the address of a socket.
_UNIX = "http+docker://"

#: What an engine calls an image that has no name.
_NO_NAME = "<none>:<none>"


def connect(address: str | None = None, *, answer_within_s: float = 60.0) -> docker.DockerClient:
    """The engine at ``address``, or else the one that DOCKER_HOST names, or the usual one; to be closed by the caller.
    Raises the errors of docker and requests if none answers."""
    # A client that finds out the engine's version as it is made cannot be closed where that fails.
    with closing(_client(address, MINIMUM_DOCKER_API_VERSION, answer_within_s)) as first:
        told = first.api.version(api_version=False)
    if "ApiVersion" not in told:
        raise DockerException("it does not tell the version of its API")
    return _client(address, str(told["ApiVersion"]), answer_within_s)


def image_tags(client: docker.DockerClient, *, label: str | None = None) -> set[str]:
    """The names of the engine's images, or of those with ``label``, as ``repository:tag``.

    It takes one question. ``client.images.list`` asks for each image again, and fails where one was removed by then.
    """
    there = client.api.images(filters={"label": label} if label else None)
    return {tag for image in there for tag in image["RepoTags"] or () if tag != _NO_NAME}


def reason(error: BaseException) -> str:
    """What the engine or the system said, without the words that docker, requests and urllib3 wrap it in."""
    if isinstance(error, APIError) and error.response is not None:
        asked = error.response.request
        return f"refused {asked.method} {urlsplit(asked.url or '').path}: {error.explanation}"
    said, inner = error, error.__context__
    while inner is not None:
        said, inner = inner if isinstance(inner, OSError) else said, inner.__context__
    return str(said) or type(said).__name__


def _client(address: str | None, version: str, answer_within_s: float) -> docker.DockerClient:
    """It has not spoken to anybody yet."""
    timeout_s = math.ceil(answer_within_s)
    if address is None:
        client = docker.from_env(version=version, timeout=timeout_s)
    else:
        client = docker.DockerClient(base_url=address, version=version, timeout=timeout_s)
    client.api.trust_env = False  # the engine runs on this machine: no proxy leads to it
    adapter = client.api.adapters.get(_UNIX)
    if isinstance(adapter, UnixHTTPAdapter):
        client.api.mount(_UNIX, _Adapter(f"http+unix://{adapter.socket_path}", timeout=adapter.timeout))
    return client


class _Connection(UnixHTTPConnection):
    """Closes the socket by which it reached nobody; docker's own leaves it to the garbage collector."""

    def connect(self) -> None:
        with ExitStack() as failed:
            tried = failed.enter_context(socket.socket(socket.AF_UNIX))
            tried.settimeout(self.timeout)
            tried.connect(self.unix_socket)
            failed.pop_all()
        self.sock = tried


class _Adapter(UnixHTTPAdapter):
    def get_connection(self, url: str | bytes, proxies: Any = None) -> Any:
        pool: Any = super().get_connection(url, proxies)
        pool._new_conn = lambda: _Connection(pool.base_url, pool.socket_path, pool.timeout)
        return pool
