"""An engine that tells its version as Docker's does, and knows of nothing else."""

from __future__ import annotations

import json
import re
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

VERSION = {"Version": "20.10.24", "ApiVersion": "1.41", "KernelVersion": "6.1"}


class FakeEngine:
    """Answers at the socket ``file`` while it is entered; ``calls`` is what it was asked for, in order."""

    def __init__(self, file: Path) -> None:
        self.calls: list[str] = []
        self._server = _Server(str(file), _Handler)
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def join(self) -> None:
        """Wait for ever: it ends with its process."""
        self._thread.join()

    def __enter__(self) -> FakeEngine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    fake: FakeEngine


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.fake.calls.append(f"GET {self.path}")
        known = re.fullmatch(r"(/v1\.41)?/version", self.path)
        content = json.dumps(VERSION if known else {"message": f"no such thing: {self.path}"}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """A test that passes writes nothing."""
