"""Connect docker's client to a container engine. No socket is left open, whether an engine answers or not."""

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
from requests import Timeout

#: The prefix that docker's client gives to the address of a socket.
_UNIX = "http+docker://"

#: The engine's name for an image without a name.
_NO_NAME = "<none>:<none>"


def connect(address: str | None = None, *, answer_within_s: float = 60.0) -> docker.DockerClient:
    """Return a client of the engine at ``address``, else of the one that DOCKER_HOST names, else of the usual one.

    The caller must close it. Raise the errors of docker and requests if no engine answers."""
    # A client that asks for the engine's version in its constructor could not be closed if that fails.
    with closing(_client(address, MINIMUM_DOCKER_API_VERSION, answer_within_s)) as first:
        version = first.api.version(api_version=False)
    if "ApiVersion" not in version:
        raise DockerException("the engine does not report the version of its API")
    return _client(address, str(version["ApiVersion"]), answer_within_s)


def image_tags(client: docker.DockerClient, *, label: str | None = None) -> set[str]:
    """Return the names of the engine's images, or of those with ``label``, as ``repository:tag``.

    This takes one request. ``client.images.list`` asks for each image again, and fails if one was removed since.
    """
    there = client.api.images(filters={"label": label} if label else None)
    return {tag for image in there for tag in image["RepoTags"] or () if tag != _NO_NAME}


def reason(error: BaseException) -> str:
    """Return the message of the engine or the system, without the words that docker, requests and urllib3 add."""
    if isinstance(error, APIError) and error.response is not None:
        asked = error.response.request
        return f"refused {asked.method} {urlsplit(asked.url or '').path}: {error.explanation}"
    said, inner = error, error.__context__
    while inner is not None:
        said, inner = inner if isinstance(inner, OSError) else said, inner.__context__
    return str(said) or type(said).__name__


def is_gone(error: BaseException) -> bool:
    """Return whether no engine listens at its address. An engine that is busy, and answers late or not, is not gone."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, APIError | Timeout):
        if isinstance(inner, FileNotFoundError | ConnectionRefusedError):
            return True
        inner = inner.__cause__ or inner.__context__
    return False


def _client(address: str | None, version: str, answer_within_s: float) -> docker.DockerClient:
    """Return a client that has not sent any request yet."""
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
    """A connection that closes its socket if connecting fails; docker's class leaves that to the garbage collector."""

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
