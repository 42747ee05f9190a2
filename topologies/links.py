"""The proxied links of one cluster, as Toxiproxy carries them.

Two brokers share one connection, which goes through the proxy of whichever opened it. So what acts on the link a->b
acts on the upstream side of proxy a->b and on the downstream side of proxy b->a. A client opens all its connections
itself: its link to a broker is the upstream side of its proxy, and the link back the downstream side.

Each side of each proxy carries one ``latency`` toxic all the time, which is only ever updated: 0 passes bytes on, an
hour holds them. Removing a toxic writes out what it held, and waits for ever where the connection has died
meanwhile (Toxiproxy's ``ToxicLink.RemoveToxic``); updating waits for nobody. It costs 3 µs a round trip.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal, Protocol

from topologies.handshake import AMQP_GREETING, Greeting, Probe, distribution_greeting, round_trip_ms
from topologies.spec import Link
from topologies.toxiproxy import Call, ToxiproxyServer

Stream = Literal["upstream", "downstream"]
_STREAMS: tuple[Stream, ...] = ("upstream", "downstream")

#: Holds every byte for longer than any scenario lasts.
_CUT_LATENCY_MS = 3_600_000
_CONNECT_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Traffic:
    """What one broker counts on its connection to one peer. ``connection`` names it: a new one has another name.
    ``sent_before_bytes``: 0.6 s earlier."""

    connection: str
    sent_bytes: int
    received_bytes: int
    sent_before_bytes: int


class Brokers(Protocol):
    """What the links ask the brokers at their ends."""

    def traffic(self, node: str) -> Mapping[str, Traffic]:
        """By peer, the connections that ``node`` considers alive; empty for a node whose process is gone."""
        ...

    def port_behind(self, link: Link) -> int:
        """Where the link's target listens itself: for other brokers, or for AMQP if the source is a client."""
        ...

    def address(self, name: str) -> str:
        """Where the ports of a node, or of the proxies (``toxiproxy``), are reached from here."""
        ...


@dataclass(frozen=True)
class Side:
    """What is asked of one direction of one proxy."""

    cut: bool = False
    latency_ms: int = 0
    jitter_ms: int = 0

    def toxic(self, stream: Stream) -> dict[str, Any]:
        latency_ms, jitter_ms = (_CUT_LATENCY_MS, 0) if self.cut else (self.latency_ms, self.jitter_ms)
        attributes = {"latency": latency_ms, "jitter": jitter_ms}
        return {"name": stream, "type": "latency", "stream": stream, "attributes": attributes}


class ToxiproxyLinks:
    """One proxy a link that somebody may open: both directions of a pair of brokers, and client to broker."""

    def __init__(self, server: ToxiproxyServer | None, ports: Mapping[Link, int], brokers: Brokers) -> None:
        """``ports``: the listening port of every proxy; where there is none no server is needed."""
        self._optional_server = server
        self._ports = dict(ports)
        self._brokers = brokers
        self._sides: dict[tuple[Link, Stream], Side] = {(link, s): Side() for link in ports for s in _STREAMS}
        self._refused: set[Link] = set()
        self._lock = threading.Lock()
        self._probes = count(1)
        self._create_all()

    @property
    def proxied(self) -> frozenset[Link]:
        return frozenset(self._ports) | frozenset(link.back for link in self._ports)

    @property
    def clean(self) -> bool:
        """Nothing is cut, delayed or refused."""
        return not self._refused and all(side == Side() for side in self._sides.values())

    def cut(self, links: Collection[Link]) -> None:
        self._change(links, cut=True)

    def restore(self, links: Collection[Link]) -> None:
        self._change(links, cut=False)

    def delay(self, links: Collection[Link], *, latency_ms: int, jitter_ms: int) -> None:
        self._change(links, latency_ms=latency_ms, jitter_ms=jitter_ms)

    def undelay(self, links: Collection[Link]) -> None:
        self._change(links, latency_ms=0, jitter_ms=0)

    def refuse(self, links: Collection[Link]) -> None:
        with self._lock:
            self._refused.update(links)
            self._call([Call.enable(_name(proxy), False) for proxy in self._proxies_of(links)])

    def accept(self, links: Collection[Link]) -> None:
        with self._lock:
            self._refused.difference_update(links)
            whole = [p for p in self._proxies_of(links) if not {p, p.back} & self._refused]
            self._call([Call.enable(_name(proxy), True) for proxy in whole])

    def refuses(self, link: Link) -> bool:
        return all(_is_refused(self._listener(proxy)) for proxy in self._proxies_of([link]))

    def connection(self, link: Link) -> str | None:
        traffic = self._brokers.traffic(link.source).get(link.target)
        return None if traffic is None else traffic.connection

    def held_bytes(self, link: Link) -> int | None:
        """Sent by the source over half a second ago and still not received, as the two brokers count it.

        Bytes in flight on a busy link thus do not pass for held ones. None also where one of the brokers
        no longer has the connection.
        """
        if link not in self._ports or link.client is not None:
            return None
        sent = self._brokers.traffic(link.source).get(link.target)
        received = self._brokers.traffic(link.target).get(link.source)
        if sent is None or received is None:
            return None
        return max(0, sent.sent_before_bytes - received.received_bytes)

    def probe_ms(self, link: Link, *, timeout_s: float) -> float | None:
        proxy = self._opened_as(link)
        if proxy is None:
            return None
        return round_trip_ms(self._listener(proxy), self._greeting(proxy), timeout_s=timeout_s)

    def probe(self, link: Link, *, direct: bool = False) -> Probe | None:
        proxy = self._opened_as(link)
        if proxy is None:
            return None
        behind = (self._brokers.address(proxy.target), self._brokers.port_behind(proxy)) if direct else None
        try:
            return Probe(behind or self._listener(proxy), self._greeting(proxy), timeout_s=_CONNECT_TIMEOUT_S)
        except OSError:
            return None

    def _opened_as(self, link: Link) -> Link | None:
        """The proxy through which a connection over ``link`` is opened: a client's for both of its directions."""
        return next((proxy for proxy in (link, link.back) if proxy in self._ports), None)

    def _listener(self, proxy: Link) -> tuple[str, int]:
        return self._brokers.address("toxiproxy"), self._ports[proxy]

    def _greeting(self, proxy: Link) -> Greeting:
        if proxy.client is not None:
            return AMQP_GREETING
        return distribution_greeting(f"probe{next(self._probes)}@localhost")

    def _proxies_of(self, links: Collection[Link]) -> list[Link]:
        return sorted({proxy for link in links for proxy in (link, link.back)} & self._ports.keys())

    def _change(self, links: Collection[Link], **fields: Any) -> None:
        """Bring the sides of all proxied links to the new state, at once."""
        with self._lock:
            changed = {}
            for place in self._places(links):
                new = replace(self._sides[place], **fields)
                if new != self._sides[place]:
                    changed[place] = new
            self._sides.update(changed)
            self._call([Call.update_toxic(_name(proxy), new.toxic(s)) for (proxy, s), new in changed.items()])

    def _places(self, links: Collection[Link]) -> Iterator[tuple[Link, Stream]]:
        for link in links:
            if link in self._ports:
                yield link, "upstream"
            if link.back in self._ports:
                yield link.back, "downstream"

    def _create_all(self) -> None:
        behind, server = self._brokers.port_behind, self._optional_server
        assert server is not None or not self._ports
        self._call([server.creation(_name(p), port, p.target, behind(p)) for p, port in self._ports.items() if server])
        self._call([Call.add_toxic(_name(proxy), side.toxic(s)) for (proxy, s), side in self._sides.items()])

    def _call(self, calls: list[Call]) -> None:
        if calls:
            assert self._optional_server is not None, "only a proxied link asks for the server"
            self._optional_server.call(calls)


def _name(proxy: Link) -> str:
    return f"{proxy.source}_to_{proxy.target}".replace(":", "-")


def _is_refused(listener: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(listener, timeout=_CONNECT_TIMEOUT_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
