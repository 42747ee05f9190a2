"""An engine that answers as Docker's does, and does nothing."""

from __future__ import annotations

import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

IMPORTED = "sha256:" + "1" * 64


class FakeEngine:
    """Answers at the socket ``file`` while it is entered; ``asked`` is what it was asked for, in order.

    ``tags`` are the names it lists, ``imported`` how an import ends, ``proof`` status and output of each container.
    """

    def __init__(self, file: Path) -> None:
        self.asked: list[tuple[str, str, list[tuple[str, str]]]] = []
        self.containers: list[dict[str, Any]] = []
        self.archive = b""
        self.tags: list[str] = []
        self.imported: dict[str, Any] = {"status": IMPORTED}
        self.proof = (0, "version 3.10.8-1\r\n")
        self._server = _Server(str(file), _Handler)
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> FakeEngine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def calls(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.asked]

    def query(self, call: str) -> list[tuple[str, str]]:
        return next(query for method, path, query in self.asked if f"{method} {path}" == call)

    def answer(self, method: str, path: str, query: list[tuple[str, str]], body: bytes) -> tuple[int, Any]:
        self.asked.append((method, path, query))
        if (method, path) == ("POST", "/images/create"):
            self.archive = body
        if (method, path) == ("POST", "/containers/create"):
            self.containers.append(json.loads(body))
        known = {
            "GET /version": {"Version": "20.10.24", "ApiVersion": "1.41", "KernelVersion": "6.1"},
            "GET /images/json": [{"Id": IMPORTED, "RepoTags": self.tags or None}],
            "POST /images/create": self.imported,
            f"POST /images/{IMPORTED}/tag": "",
            f"DELETE /images/{IMPORTED}": [],
            "POST /images/prune": {},
            "POST /containers/prune": {},
            "POST /containers/create": {"Id": "c1"},
            "POST /containers/c1/start": "",
            "POST /containers/c1/wait": {"StatusCode": self.proof[0]},
            "GET /containers/c1/logs": self.proof[1],
            "DELETE /containers/c1": "",
        }
        if f"{method} {path}" in known:
            return 200, known[f"{method} {path}"]
        return 404, {"message": f"no such thing: {path}"}


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    fake: FakeEngine


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, told = self.server.fake.answer(self.command, parts.path, parse_qsl(parts.query), body)
        content = (told if isinstance(told, str) else json.dumps(told)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        """A test that passes writes nothing."""
