"""Run one Toxiproxy server, and call its HTTP API for many proxies at once.

A blip of 4 ms on all links of seven nodes takes 84 calls to begin and as many to end. So calls are sent at once on a
few connections. Each connection carries many requests before the first answer is read (RFC 9112, section 9.3.2).

Source: https://github.com/Shopify/toxiproxy (HTTP API).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from http.client import HTTPException, parse_headers
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.broker_host import Host
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_API_TIMEOUT_S = 5.0
_CONNECTIONS_MAX = 4


class Call(NamedTuple):
    """One request to the API; ``body`` is sent as JSON."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None

    @classmethod
    def create(cls, proxy: str, *, listen: str, upstream: str, enabled: bool = True) -> Call:
        """Return the call that creates a proxy. ``listen`` and ``upstream`` have the form ``host:port``."""
        return cls("POST", "/proxies", {"name": proxy, "listen": listen, "upstream": upstream, "enabled": enabled})

    @classmethod
    def delete(cls, proxy: str) -> Call:
        """Return the call that deletes a proxy, which also ends its connections."""
        return cls("DELETE", f"/proxies/{proxy}")

    @property
    def proxy(self) -> str | None:
        """Return the name of the proxy that the call acts on; None if it acts on none, or creates one."""
        match self.path.split("/"):
            case ["", "proxies", name, *_]:
                return name
        return None

    @classmethod
    def enable(cls, proxy: str, enabled: bool) -> Call:
        """Return the call that enables or disables a proxy. A disabled proxy closes its connections and its port."""
        return cls("POST", f"/proxies/{proxy}", {"enabled": enabled})

    @classmethod
    def add_toxic(cls, proxy: str, toxic: Mapping[str, Any]) -> Call:
        return cls("POST", f"/proxies/{proxy}/toxics", toxic)

    @classmethod
    def update_toxic(cls, proxy: str, toxic: Mapping[str, Any]) -> Call:
        return cls("POST", f"/proxies/{proxy}/toxics/{toxic['name']}", {"attributes": toxic["attributes"]})

    def encoded(self) -> bytes:
        body = b"" if self.body is None else json.dumps(self.body).encode()
        head = f"{self.method} {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


class UnansweredError(ClusterError):
    """A call got no answer in time, or an incomplete one."""


class ToxiproxyServer:
    """A Toxiproxy server on the host of a cluster. Methods raise ``ClusterError``."""

    def __init__(self, host: Host, *, port: int, published: Collection[int], folder: Path) -> None:
        """Start the server. ``port`` is the API's. ``published`` are the ports of proxies that must be reachable on
        loopback too."""
        self._net = host.net
        self._port = port
        self._log = folder / "toxiproxy.log"
        arguments = ["-host", self._net.listen, "-port", str(port)]
        environ = {"LOG_LEVEL": "error"}  # by default Toxiproxy logs each connection
        ports = [port, *published]
        self._running = host.serve("toxiproxy", arguments, environ, ports=ports, folder=folder, log=self._log)

    def creation(self, proxy: str, port: int, target: str, target_port: int, *, enabled: bool = True) -> Call:
        """Return the call that creates a proxy from ``port`` to a port of the node ``target``."""
        upstream = f"{self._net.name_of(target)}:{target_port}"
        return Call.create(proxy, listen=f"{self._net.listen}:{port}", upstream=upstream, enabled=enabled)

    def await_ready(self, *, timeout_s: float = 10.0) -> None:
        try:
            wait_until(self._answers, timeout_s=timeout_s, poll_s=0.02, what=f"Toxiproxy on port {self._port}")
        except WaitTimeout as error:
            raise ClusterError(f"{error}; see {self._log}") from error

    def call(self, calls: Sequence[Call]) -> None:
        """Make all calls, in no order. Return when all are answered. Raise ``ClusterError`` for the first refused call.
        Raise ``UnansweredError`` if a call gets no answer; the effect of the other calls is then unknown."""
        with ExitStack() as stack:
            try:
                shares = [calls[i::_CONNECTIONS_MAX] for i in range(min(_CONNECTIONS_MAX, len(calls)))]
                sockets = [stack.enter_context(self._connect()) for _ in shares]
                for connection, share in zip(sockets, shares, strict=True):
                    connection.sendall(b"".join(call.encoded() for call in share))
                answers = [
                    (call, *_answer(reader))
                    for connection, share in zip(sockets, shares, strict=True)
                    for reader in [stack.enter_context(connection.makefile("rb"))]
                    for call in share
                ]
            except (OSError, HTTPException, ValueError) as error:
                raise UnansweredError(f"Toxiproxy did not answer: {error!r}; see {self._log}") from error
        for call, status, text in answers:
            if status >= 400:
                raise ClusterError(f"Toxiproxy answered {call.method} {call.path} with {status}: {text[:300]}")

    def close(self) -> None:
        self._running.close()

    def _connect(self) -> socket.socket:
        return socket.create_connection((LOOPBACK, self._port), timeout=_API_TIMEOUT_S)

    def _answers(self) -> bool:
        if self._running.exit_status is not None:
            raise ClusterError(f"Toxiproxy ended with status {self._running.exit_status}; see {self._log}")
        try:
            self.call([Call("GET", "/version")])
        except ClusterError:
            return False
        return True


def _answer(reader: BinaryIO) -> tuple[int, str]:
    """Return status and text of the next answer. Raise ValueError if the bytes are no answer, or if it states no
    length."""
    line = reader.readline()
    if not line.startswith(b"HTTP/1.1 "):
        raise ValueError(f"{line!r} is no HTTP/1.1 answer")
    headers = parse_headers(reader)
    status = int(line.split()[1])
    if status == 204:
        return status, ""
    length = headers["Content-Length"]
    if length is None:
        raise ValueError(f"the answer states no length: {line!r}")
    return status, reader.read(int(length)).decode(errors="replace")
