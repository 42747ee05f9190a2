"""A container engine, by Docker's HTTP API: the one that answers, and what set-up asks of it.

Set-up runs before any package is there, so this is plain HTTP over the engine's socket. The calls are described in
https://docs.docker.com/reference/api/engine/version/v1.41/ (Docker 20.10); no call names a version, so that newer
engines, which refuse old ones, answer too.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from setup.progress import Failed, Line, megabytes

DEFAULT_ADDRESS = "unix:///var/run/docker.sock"

_ANSWER_TIMEOUT_S = 10
_WORK_TIMEOUT_S = 900
_CHUNK_BYTES = 1 << 20


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, *, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Engine:
    """The engine at ``address``: ``unix:///path`` or ``tcp://host:port``. Every call raises ``Failed`` with what the
    engine said, or why it did not answer."""

    address: str

    def version(self) -> str:
        told = self._json("GET", "/version", timeout_s=_ANSWER_TIMEOUT_S)
        return f"{told['Version']} (API {told['ApiVersion']}, Linux {told.get('KernelVersion', 'unknown')})"

    def tags(self, label: str) -> dict[str, str]:
        """The names of all images that have ``label`` (``key`` or ``key=value``), each with its image's ID."""
        filters = json.dumps({"label": [label]})
        images = self._json("GET", "/images/json", query={"filters": filters}, timeout_s=_ANSWER_TIMEOUT_S)
        return {tag: image["Id"] for image in images for tag in image["RepoTags"] or () if tag != "<none>:<none>"}

    def import_image(self, archive: Path, *, changes: Sequence[str], doing: str) -> str:
        """Make an image of a tar file of its whole file system. It has no name; returns its ID.

        ``changes`` are instructions of a Dockerfile: ENV, LABEL, CMD and so on.
        """
        size_bytes = archive.stat().st_size
        headers = {"Content-Type": "application/x-tar", "Content-Length": str(size_bytes)}
        query = [("fromSrc", "-"), *(("changes", change) for change in changes)]
        line = Line(doing)
        try:
            body = _chunks(archive, line)
            answer = self._ask("POST", "/images/create", query=query, body=body, headers=headers)
        finally:
            line.end()
        told = [json.loads(part) for part in answer.splitlines() if part.strip()]
        for message in told:
            if "error" in message:
                raise Failed(f"{doing}: {message['error']}")
        if not told or not str(told[-1].get("status", "")).startswith("sha256:"):
            raise Failed(f"{doing}: the engine named no image, it said: {answer[-200:]!r}")
        return str(told[-1]["status"])

    def name_image(self, image: str, name: str) -> None:
        repository, _, tag = name.rpartition(":")
        self._ask("POST", f"/images/{quote(image, safe=':')}/tag", query={"repo": repository, "tag": tag})

    def remove_image(self, image: str) -> None:
        self._ask("DELETE", f"/images/{quote(image, safe=':')}", query={"force": "true"})

    def remove_left_over(self, *, images: str, containers: str) -> None:
        """Remove the images with that label that lost their name to newer ones, and what calls that were broken off an
        hour ago or earlier have left: images that never got a name, and containers with that label that have ended."""
        left = {"images": {"dangling": ["true"], "label": [images]}, "containers": {"label": [containers]}}
        for kind, filters in left.items():
            query = {"filters": json.dumps({**filters, "until": ["1h"]})}
            self._ask("POST", f"/{kind}/prune", query=query)

    def run(self, image: str, command: Sequence[str], *, user: str, label: str) -> str:
        """Run ``command`` in a container with ``label`` (``key=value``), without network, to its end; returns what it
        wrote.

        Raises ``Failed`` with that if its status is not 0.
        """
        key, _, value = label.partition("=")
        asked = {"Image": image, "Entrypoint": command[:1], "Cmd": command[1:], "User": user, "Tty": True}
        asked |= {"Labels": {key: value}, "HostConfig": {"NetworkMode": "none"}}
        container = self._json("POST", "/containers/create", body=asked)["Id"]
        try:
            self._ask("POST", f"/containers/{container}/start")
            status = self._json("POST", f"/containers/{container}/wait")["StatusCode"]
            text = self._ask("GET", f"/containers/{container}/logs", query={"stdout": "true", "stderr": "true"})
        finally:
            self._ask("DELETE", f"/containers/{container}", query={"force": "true"})
        if status != 0:
            raise Failed(f"`{' '.join(command)}` ended with status {status} in the container\n{text.strip()}")
        return text.replace("\r\n", "\n")

    def _json(self, method: str, path: str, *, body: Mapping[str, Any] | None = None, **more: Any) -> Any:
        if body is None:
            return json.loads(self._ask(method, path, **more))
        headers = {"Content-Type": "application/json"}
        return json.loads(self._ask(method, path, body=json.dumps(body).encode(), headers=headers, **more))

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _WORK_TIMEOUT_S,
    ) -> str:
        connection = _connection(self.address, timeout_s=timeout_s)
        try:
            connection.request(method, f"{path}?{urlencode(query)}", body=body, headers=headers or {})
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{self.address}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise Failed(f"{self.address} refused {method} {path}: {_message(text)}")
        return text


def _connection(address: str, *, timeout_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    if parts.scheme == "unix" and parts.path:
        return _UnixConnection(parts.path, timeout_s=timeout_s)
    if parts.scheme == "tcp" and parts.hostname and not os.environ.get("DOCKER_TLS_VERIFY"):
        return http.client.HTTPConnection(parts.hostname, parts.port or 2375, timeout=timeout_s)
    raise Failed(f"{address}: set-up speaks to engines at unix:///path or tcp://host:port, and not over TLS or ssh")


def _chunks(archive: Path, line: Line) -> Iterator[bytes]:
    total = megabytes(archive.stat().st_size)
    with archive.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            line.show(f"{megabytes(content.tell())} of {total}")
            yield chunk


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()[:200]


def address() -> str:
    """Where clients look for the engine: DOCKER_HOST, else Docker's own default."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_ADDRESS


def answering() -> Engine:
    """The engine that clients will find. Raises ``Failed`` if it does not answer."""
    engine = Engine(address())
    engine.version()
    return engine
