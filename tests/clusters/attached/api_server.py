"""An API server of Kubernetes in this process, for what our client asks of one: objects by their paths, and what was
asked. It knows no kinds; what controllers would do is told it by the tests."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes import client

Body = dict[str, Any]


@dataclass
class ApiServer:
    """``made``, ``changed`` and ``deleted`` are told the object right afterwards, ``evicting`` before."""

    configuration: client.Configuration
    objects: dict[str, Body] = field(default_factory=dict)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    made: Callable[[Body], None] = lambda _: None
    changed: Callable[[Body], None] = lambda _: None
    deleted: Callable[[str], None] = lambda _: None
    #: The answer to an eviction of the pod at a path: a status, and words.
    evicting: Callable[[str], tuple[int, str]] = lambda _: (201, "")
    lock: threading.RLock = field(default_factory=threading.RLock)

    def put(self, collection: str, name: str, **fields: Any) -> Body:
        """An object that is there."""
        body = {**fields, "metadata": {"name": name, **fields.get("metadata", {})}}
        _dated(body, collection)
        self.objects[f"{collection}/{name}"] = body
        return body

    def answer(self, verb: str, url: str, body: Any) -> tuple[int, Body]:
        parts = urlsplit(url)
        path, query = parts.path, {key: values[0] for key, values in parse_qs(parts.query).items()}
        with self.lock:
            if verb != "GET":
                self.asked.append((verb, path, body))
            return getattr(self, f"_{verb.lower()}")(path, query, body)  # type: ignore[no-any-return]

    def did(self, verb: str, *, of: str) -> list[tuple[str, Any]]:
        """What was asked with that verb of paths with ``of`` in them."""
        return [(path, body) for asked, path, body in self.asked if asked == verb and of in path]

    def _get(self, path: str, query: dict[str, str], _: Any) -> tuple[int, Body]:
        if path in self.objects:
            return 200, self.objects[path]
        name = path.rpartition("/")[2]
        inside = [one for at, one in self.objects.items() if at.rpartition("/")[0] == path]
        if path == "/api/v1/pods":  # of all namespaces
            inside = [one for at, one in self.objects.items() if "/pods/" in at]
        if not inside and (not name.endswith("s") or name[-2:-1] == "-"):
            return _failed(404, f"{name} is not found")
        return 200, {"items": [one for one in inside if _selected(one, query)], "metadata": {}}

    def _post(self, path: str, _: dict[str, str], body: Body) -> tuple[int, Body]:
        if path.endswith("/eviction"):
            pod = path.removesuffix("/eviction")
            if pod not in self.objects:
                return _failed(404, "the pod is not found")
            status, words = self.evicting(pod)
            if status >= 400:
                return _failed(status, words)
            self._delete(pod, {}, {})
            return 201, {"kind": "Status", "status": "Success"}
        at = f"{path}/{body['metadata']['name']}"
        if at in self.objects:
            return _failed(409, "it exists already")
        _dated(body, path)
        self.objects[at] = body
        self.made(body)
        return 201, body

    def _patch(self, path: str, _: dict[str, str], body: Body) -> tuple[int, Body]:
        if path not in self.objects:
            return _failed(404, f"{path} is not found")
        found = self.objects[path]
        expected = body.get("metadata", {}).get("resourceVersion")
        if expected not in (None, found["metadata"]["resourceVersion"]):
            return _failed(409, "it has been modified")
        before = json.dumps(found.get("spec"))
        _merge(found, body)
        found["metadata"]["resourceVersion"] = secrets.token_hex(4)
        found["metadata"]["generation"] += before != json.dumps(found.get("spec"))
        self.changed(found)
        if found["metadata"].get("deletionTimestamp") and not found["metadata"].get("finalizers"):
            self._go(path)
        return 200, found

    def _delete(self, path: str, _: dict[str, str], body: Body | None) -> tuple[int, Body]:
        if path not in self.objects:
            return _failed(404, f"{path} is not found")
        found, wanted = self.objects[path], ((body or {}).get("preconditions") or {}).get("uid")
        if wanted not in (None, found["metadata"]["uid"]):
            return _failed(409, "the uid is another one")
        if found["metadata"].get("finalizers"):
            found["metadata"]["deletionTimestamp"] = "2026-11-24T10:00:00Z"
        else:
            self._go(path)
        return 200, found

    def _go(self, path: str) -> None:
        self.objects.pop(path)
        self.deleted(path)


def _dated(body: Body, collection: str) -> None:
    _, inside, rest = collection.partition("/namespaces/")
    namespace = {"namespace": rest.partition("/")[0]} if inside else {}
    body["metadata"] = {
        **namespace,
        "uid": secrets.token_hex(8),
        "generation": 1,
        "resourceVersion": secrets.token_hex(4),
        "creationTimestamp": "2026-11-24T09:00:00Z",
        **body["metadata"],
    }


def _selected(one: Body, query: dict[str, str]) -> bool:
    labels, wanted = one["metadata"].get("labels", {}), query.get("labelSelector", "")
    on = query.get("fieldSelector", "").partition("=")[2]
    if " in " in wanted:
        name, _, values = wanted.partition(" in ")
        return labels.get(name) in values.strip("()").split(",")
    name, _, value = wanted.partition("=")
    return (not wanted or labels.get(name) == value) and (not on or one.get("spec", {}).get("nodeName") == on)


def _merge(into: Body, patch: Body) -> None:
    """RFC 7386."""
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


def _failed(status: int, words: str) -> tuple[int, Body]:
    return status, {"kind": "Status", "status": "Failure", "message": words, "code": status}


@contextmanager
def api_server() -> Iterator[ApiServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _all(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            told = self.rfile.read(length)
            status, body = server.answer(self.command, self.path, json.loads(told) if told else None)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = _all

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        configuration = client.Configuration()
        configuration.host = f"http://127.0.0.1:{listening.server_port}"
        server = ApiServer(configuration)
        serving = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield server
        finally:
            listening.shutdown()
            serving.join()
