"""Drives one Toxiproxy server, which carries the proxied links of one cluster.

Sources: https://github.com/Shopify/toxiproxy (API and toxics), its link.go for what removing a toxic does.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, Protocol

import httpx

from topologies.cluster import ClusterError
from topologies.handshake import distribution_round_trip_ms
from topologies.reaper import marked
from topologies.spec import Link
from topologies.waiting import WaitTimeout, wait_until

Stream = Literal["upstream", "downstream"]

#: Holds every byte for longer than any scenario lasts.
_CUT_LATENCY_MS = 3_600_000
_API_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Traffic:
    """What one broker counts on its connection to one peer. ``sent_before_bytes``: 0.6 s earlier."""

    sent_bytes: int
    received_bytes: int
    sent_before_bytes: int


class Brokers(Protocol):
    """What the links ask the brokers at their ends."""

    def traffic(self, node: str) -> Mapping[str, Traffic]:
        """By peer, the connections that ``node`` considers alive; empty for a node whose process is gone."""
        ...

    def distribution_port(self, node: str) -> int: ...


@dataclass(frozen=True)
class Side:
    """What is asked of one direction of one proxy."""

    cut: bool = False
    latency_ms: int = 0
    jitter_ms: int = 0

    def toxics(self, stream: Stream) -> dict[str, dict[str, Any]]:
        """By name, the toxics that make it so."""
        wanted: dict[str, dict[str, int]] = {}
        if self.latency_ms or self.jitter_ms:
            wanted[f"delay_{stream}"] = {"latency": self.latency_ms, "jitter": self.jitter_ms}
        if self.cut:
            wanted[f"cut_{stream}"] = {"latency": _CUT_LATENCY_MS, "jitter": 0}
        return {
            name: {"name": name, "type": "latency", "stream": stream, "attributes": attributes}
            for name, attributes in wanted.items()
        }


class ToxiproxyServer:
    """A Toxiproxy process that listens on loopback, and its HTTP API. Raises ``ClusterError``."""

    def __init__(self, program: Path, *, port: int, folder: Path) -> None:
        self._base_url = f"http://127.0.0.1:{port}"
        self._client = httpx.Client(base_url=self._base_url, timeout=_API_TIMEOUT_S, trust_env=False)
        self._log = folder / "toxiproxy.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(program), "-host", "127.0.0.1", "-port", str(port)],
                env=marked({"LOG_LEVEL": "warn"}, folder),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def await_ready(self, *, timeout_s: float = 10.0) -> None:
        try:
            wait_until(self._answers, timeout_s=timeout_s, poll_s=0.02, what=f"Toxiproxy at {self._base_url}")
        except WaitTimeout as error:
            raise ClusterError(f"{error}; see {self._log}") from error

    def create(self, name: str, *, listen_port: int, upstream_port: int) -> None:
        listen, upstream = f"127.0.0.1:{listen_port}", f"127.0.0.1:{upstream_port}"
        self._call("POST", "/proxies", {"name": name, "listen": listen, "upstream": upstream, "enabled": True})

    def delete(self, name: str) -> None:
        self._call("DELETE", f"/proxies/{name}")

    def add_toxic(self, proxy: str, toxic: Mapping[str, Any]) -> None:
        self._call("POST", f"/proxies/{proxy}/toxics", toxic)

    def update_toxic(self, proxy: str, toxic: Mapping[str, Any]) -> None:
        self._call("POST", f"/proxies/{proxy}/toxics/{toxic['name']}", {"attributes": toxic["attributes"]})

    def remove_toxic(self, proxy: str, name: str) -> None:
        self._call("DELETE", f"/proxies/{proxy}/toxics/{name}")

    def close(self) -> None:
        """Close the connections to the server, and end it."""
        self._client.close()
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise ClusterError(f"Toxiproxy ended with status {self._process.returncode}; see {self._log}")
        try:
            return self._client.get("/version", timeout=1.0).is_success
        except httpx.HTTPError:
            return False

    def _call(self, method: str, path: str, body: object | None = None) -> None:
        try:
            response = self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise ClusterError(f"Toxiproxy did not answer {method} {path}: {error!r}; see {self._log}") from error
        if response.is_error:
            raise ClusterError(f"Toxiproxy answered {method} {path} with {response.status_code}: {response.text[:300]}")


class ToxiproxyLinks:
    """The proxied links of a cluster: one proxy a directed link, for both directions of every pair.

    A connection between two brokers goes through the proxy of whichever opened it. So what acts on the
    link a->b acts on the upstream side of proxy a->b and on the downstream side of proxy b->a.
    """

    def __init__(self, server: ToxiproxyServer | None, ports: Mapping[Link, int], brokers: Brokers) -> None:
        """``ports``: the listening port of every proxied link; where there is none no server is needed."""
        self._optional_server = server
        self._ports = dict(ports)
        self._brokers = brokers
        self._sides: dict[tuple[Link, Stream], Side] = {
            (link, stream): Side() for link in ports for stream in ("upstream", "downstream")
        }
        self._probes = count(1)
        for link in self._ports:
            self._create(link)

    @property
    def proxied(self) -> frozenset[Link]:
        return frozenset(self._ports)

    @property
    def clean(self) -> bool:
        """Nothing is cut or delayed."""
        return all(side == Side() for side in self._sides.values())

    @property
    def _server(self) -> ToxiproxyServer:
        assert self._optional_server is not None, "only a proxied link asks for the server"
        return self._optional_server

    def cut(self, links: Collection[Link]) -> None:
        self._change(links, cut=True)

    def restore(self, links: Collection[Link]) -> None:
        self._change(links, cut=False)

    def delay(self, links: Collection[Link], *, latency_ms: int, jitter_ms: int) -> None:
        self._change(links, latency_ms=latency_ms, jitter_ms=jitter_ms)

    def undelay(self, links: Collection[Link]) -> None:
        self._change(links, latency_ms=0, jitter_ms=0)

    def held_bytes(self, link: Link) -> int | None:
        """Sent by the source over half a second ago and still not received, as the two brokers count it.

        Bytes in flight on a busy link thus do not pass for held ones. None also where one of the brokers
        no longer has the connection.
        """
        if link not in self._ports:
            return None
        sent = self._brokers.traffic(link.source).get(link.target)
        received = self._brokers.traffic(link.target).get(link.source)
        if sent is None or received is None:
            return None
        return max(0, sent.sent_before_bytes - received.received_bytes)

    def probe_ms(self, link: Link, *, timeout_s: float) -> float | None:
        """Time the beginning of a handshake with the link's target, through the link's proxy."""
        port = self._ports.get(link)
        if port is None:
            return None
        return distribution_round_trip_ms(port, node_name=f"probe{next(self._probes)}@localhost", timeout_s=timeout_s)

    def _change(self, links: Collection[Link], **fields: Any) -> None:
        """Bring both sides of each proxied link to the new state."""
        for link in links:
            if link not in self._ports:
                continue
            reverse = Link(link.target, link.source)
            connected = self._is_connected(link)
            self._bring(link, "upstream", connected=connected, **fields)
            self._bring(reverse, "downstream", connected=connected, **fields)

    def _bring(self, proxy: Link, stream: Stream, *, connected: bool, **fields: Any) -> None:
        """Toxics go onto a proxy at any time, but come off only where both brokers still hold the connection.

        Removing one flushes what it held; with the reader gone that blocks Toxiproxy for good. Such a proxy
        is made anew instead, which closes nothing that anybody still uses.
        """
        old = self._sides[proxy, stream]
        new = replace(old, **fields)
        if new == old:
            return
        self._sides[proxy, stream] = new
        had, wanted = old.toxics(stream), new.toxics(stream)
        if had.keys() - wanted.keys() and not connected:
            self._server.delete(_name(proxy))
            self._create(proxy)
            return
        for name in had.keys() - wanted.keys():
            self._server.remove_toxic(_name(proxy), name)
        for name in sorted(wanted.keys() - had.keys()):
            self._server.add_toxic(_name(proxy), wanted[name])
        for name in wanted.keys() & had.keys():
            if wanted[name] != had[name]:
                self._server.update_toxic(_name(proxy), wanted[name])

    def _create(self, proxy: Link) -> None:
        """Create a proxy with the toxics that are asked of it."""
        upstream_port = self._brokers.distribution_port(proxy.target)
        self._server.create(_name(proxy), listen_port=self._ports[proxy], upstream_port=upstream_port)
        streams: tuple[Stream, ...] = ("upstream", "downstream")
        for stream in streams:
            for toxic in self._sides[proxy, stream].toxics(stream).values():
                self._server.add_toxic(_name(proxy), toxic)

    def _is_connected(self, link: Link) -> bool:
        """Both brokers consider their connection alive. Counting its age would only be a guess."""
        there = link.target in self._brokers.traffic(link.source)
        return there and link.source in self._brokers.traffic(link.target)


def _name(proxy: Link) -> str:
    return f"{proxy.source}_to_{proxy.target}"
