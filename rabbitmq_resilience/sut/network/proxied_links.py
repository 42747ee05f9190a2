"""Control the proxied links of one cluster through Toxiproxy.

Two brokers share one connection, which goes through the proxy of the broker that opened it. So an act on the link a->b
acts on the upstream side of proxy a->b and on the downstream side of proxy b->a. A client opens all its connections
itself: its link to a broker is the upstream side of its proxy, and the link back the downstream side.

Each side of each proxy always has one ``latency`` toxic, which is only updated and never removed: 0 passes bytes on, an
hour holds them. Removing a toxic writes out the held bytes, and hangs forever if the connection has died meanwhile
(Toxiproxy's ``ToxicLink.RemoveToxic``). An update can hang too: on a connection that the previous update found dead and
that is not yet removed (``ToxicStub.InterruptToxic``, ``ToxicCollection.RemoveLink``). This happened in 1 of about 100
cases in which ten connections died and six updates followed at once. The only remedy is to create the proxy again,
which ends its other connections too. The toxics cost 3 µs for each round trip.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal, Protocol

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.network_settings import Delay
from rabbitmq_resilience.sut.broker.handshake import (
    AMQP_GREETING,
    Greeting,
    Probe,
    distribution_greeting,
    round_trip_ms,
)
from rabbitmq_resilience.sut.network.toxiproxy import Call, ToxiproxyServer, UnansweredError

Stream = Literal["upstream", "downstream"]
_STREAMS: tuple[Stream, ...] = ("upstream", "downstream")

#: A latency that holds every byte for longer than any scenario lasts.
_CUT_LATENCY_MS = 3_600_000
_CONNECT_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class ConnectionTraffic:
    """A broker's counters of its connection to one peer. ``connection`` is the connection's name; a new connection has
    another name. ``sent_before_bytes`` is ``sent_bytes`` 0.6 s earlier."""

    connection: str
    sent_bytes: int
    received_bytes: int
    sent_before_bytes: int


class BrokerQueries(Protocol):
    """The information about brokers that links need."""

    def traffic(self, node: str) -> Mapping[str, ConnectionTraffic]:
        """Return {peer: traffic} for the connections that ``node`` considers alive; empty if its process is gone."""
        ...

    def port_behind(self, link: Link) -> int:
        """Return the port on which the link's target listens: for other brokers, or for AMQP if the source is a
        client."""
        ...

    def address(self, name: str) -> str:
        """Return the address at which this process reaches a node, or the proxies (``toxiproxy``)."""
        ...


@dataclass(frozen=True)
class ProxySide:
    """The requested state of one direction of one proxy."""

    cut: bool = False
    latency_ms: int = 0
    jitter_ms: int = 0

    def toxic(self, stream: Stream, always: Delay | None = None) -> dict[str, Any]:
        """Return the toxic for this state. ``always``: the network's permanent delay, which is added."""
        latency_ms, jitter_ms = (_CUT_LATENCY_MS, 0) if self.cut else (self.latency_ms, self.jitter_ms)
        if always is not None and not self.cut:
            latency_ms, jitter_ms = latency_ms + always.latency_ms, jitter_ms + always.jitter_ms
        attributes = {"latency": latency_ms, "jitter": jitter_ms}
        return {"name": stream, "type": "latency", "stream": stream, "attributes": attributes}


class ToxiproxyLinks:
    """The proxies of a cluster, one for each link on which connections are opened: both directions between two brokers,
    and client to broker."""

    def __init__(
        self,
        server: ToxiproxyServer | None,
        ports: Mapping[Link, int],
        brokers: BrokerQueries,
        delay_of: Callable[[Link], Delay | None] = lambda _: None,
        *,
        shadow: ToxiproxyLinks | None = None,
        suffix: str = "",
    ) -> None:
        """Create the proxies. ``ports``: the listening port of every proxy; without any, no server is needed.
        ``delay_of``: the permanent delay of a link, from ``begin_network`` on. ``shadow``: further links on which every
        act is repeated. ``suffix``: the end of the proxies' names."""
        self._delay_of = delay_of
        self._network_begun = False
        self._shadow = shadow
        self._suffix = suffix
        self._optional_server = server
        self._ports = dict(ports)
        self._brokers = brokers
        self._sides: dict[tuple[Link, Stream], ProxySide] = {(link, s): ProxySide() for link in ports for s in _STREAMS}
        self._refused: set[Link] = set()
        self._lock = threading.Lock()
        #: The names of the proxies that had to be created again, once for each time.
        self.remade: list[str] = []
        self._unsure = False
        self._probes = count(1)
        self._create_all()

    @property
    def proxied(self) -> frozenset[Link]:
        return frozenset(self._ports) | frozenset(link.back for link in self._ports)

    @property
    def clean(self) -> bool:
        """Return whether no link is cut, delayed or refused, and no call has failed."""
        return not self._unsure and not self._refused and all(side == ProxySide() for side in self._sides.values())

    def begin_network(self) -> None:
        """Begin the permanent delays. Brokers join before that, as joining takes hundreds of round trips for each."""
        with self._lock:
            self._network_begun = True
            slow = [(proxy, s) for proxy, s in self._sides if self._always(proxy, s) is not None]
            self._call([Call.update_toxic(self._name(proxy), self._toxic(proxy, s)) for proxy, s in slow])
        if self._shadow is not None:
            self._shadow.begin_network()

    def cut(self, links: Collection[Link]) -> None:
        self._change(links, cut=True)
        if self._shadow is not None:
            self._shadow.cut(links)

    def restore(self, links: Collection[Link]) -> None:
        self._change(links, cut=False)
        if self._shadow is not None:
            self._shadow.restore(links)

    def delay(self, links: Collection[Link], *, latency_ms: int, jitter_ms: int) -> None:
        self._change(links, latency_ms=latency_ms, jitter_ms=jitter_ms)
        if self._shadow is not None:
            self._shadow.delay(links, latency_ms=latency_ms, jitter_ms=jitter_ms)

    def undelay(self, links: Collection[Link]) -> None:
        self._change(links, latency_ms=0, jitter_ms=0)
        if self._shadow is not None:
            self._shadow.undelay(links)

    def refuse(self, links: Collection[Link]) -> None:
        with self._lock:
            self._refused.update(links)
            self._call([Call.enable(self._name(proxy), False) for proxy in self._proxies_of(links)])
        if self._shadow is not None:
            self._shadow.refuse(links)

    def accept(self, links: Collection[Link]) -> None:
        with self._lock:
            self._refused.difference_update(links)
            whole = [p for p in self._proxies_of(links) if not {p, p.back} & self._refused]
            self._call([Call.enable(self._name(proxy), True) for proxy in whole])
        if self._shadow is not None:
            self._shadow.accept(links)

    def refuses(self, link: Link) -> bool:
        return all(_is_refused(self._listener(proxy)) for proxy in self._proxies_of([link]))

    def attested(self, links: Collection[Link]) -> None:
        """Return None: only probes show whether a link is cut."""

    def connection(self, link: Link) -> str | None:
        traffic = self._brokers.traffic(link.source).get(link.target)
        return None if traffic is None else traffic.connection

    def held_bytes(self, link: Link) -> int | None:
        """Return how many bytes the source sent over half a second ago that the target has not received, by the two
        brokers' counters.

        So bytes in flight on a busy link do not count as held. Return None for links without a proxy, for clients'
        links, and if one of the brokers no longer has the connection.
        """
        if link not in self._ports or link.client is not None:
            return None
        sent = self._brokers.traffic(link.source).get(link.target)
        received = self._brokers.traffic(link.target).get(link.source)
        if sent is None or received is None:
            return None
        return max(0, sent.sent_before_bytes - received.received_bytes)

    def probe_ms(self, link: Link, *, timeout_s: float, direct: bool = False) -> float | None:
        proxy = self._opened_as(link)
        if proxy is None:
            return None
        address = self._behind(proxy) if direct else self._listener(proxy)
        return round_trip_ms(address, self._greeting(proxy), timeout_s=timeout_s)

    def server_answers(self) -> bool:
        try:
            self._server.call([Call("GET", "/version")])
        except ClusterError:
            return False
        return True

    def probe(self, link: Link, *, direct: bool = False) -> Probe | None:
        proxy = self._opened_as(link)
        if proxy is None:
            return None
        address = self._behind(proxy) if direct else self._listener(proxy)
        try:
            return Probe.to(address, self._greeting(proxy), timeout_s=_CONNECT_TIMEOUT_S)
        except OSError:
            return None

    def _opened_as(self, link: Link) -> Link | None:
        """Return the proxy for a new connection over ``link``. A client's proxy serves both directions."""
        return next((proxy for proxy in (link, link.back) if proxy in self._ports), None)

    def _listener(self, proxy: Link) -> tuple[str, int]:
        return self._brokers.address("toxiproxy"), self._ports[proxy]

    def _behind(self, proxy: Link) -> tuple[str, int]:
        return self._brokers.address(proxy.target), self._brokers.port_behind(proxy)

    def _greeting(self, proxy: Link) -> Greeting:
        if proxy.client is not None:
            return AMQP_GREETING
        return distribution_greeting(f"probe{next(self._probes)}@localhost")

    def _proxies_of(self, links: Collection[Link]) -> list[Link]:
        return sorted({proxy for link in links for proxy in (link, link.back)} & self._ports.keys())

    def _change(self, links: Collection[Link], **fields: Any) -> None:
        """Set ``fields`` on the sides of all proxied links at once."""
        with self._lock:
            changed = {}
            for place in self._places(links):
                new = replace(self._sides[place], **fields)
                if new != self._sides[place]:
                    changed[place] = new
            before = {place: self._toxic(*place) for place in changed}
            self._sides.update(changed)
            # An update lets the data through that a cut holds back, even if it changes nothing.
            updates = [(proxy, toxic) for proxy, s in changed if (toxic := self._toxic(proxy, s)) != before[proxy, s]]
            self._call([Call.update_toxic(self._name(proxy), toxic) for proxy, toxic in updates])

    def _places(self, links: Collection[Link]) -> Iterator[tuple[Link, Stream]]:
        for link in links:
            if link in self._ports:
                yield link, "upstream"
            if link.back in self._ports:
                yield link.back, "downstream"

    def _create_all(self) -> None:
        if self._ports:
            self._server.call([self._creation(proxy) for proxy in self._ports])
            self._server.call([Call.add_toxic(self._name(proxy), self._toxic(proxy, s)) for proxy, s in self._sides])

    def _call(self, calls: list[Call]) -> None:
        if not calls:
            return
        try:
            self._server.call(calls)
        except UnansweredError:
            self._call_one_by_one(calls)  # calls may be repeated: each sets a state, and none is relative

    def _call_one_by_one(self, calls: list[Call]) -> None:
        """Make each call, even if another one fails. Create a proxy again if its call gets no answer. Raise the last
        failure."""
        proxies = {self._name(proxy): proxy for proxy in self._ports}
        failed: ClusterError | None = None
        for call in calls:
            try:
                self._server.call([call])
            except UnansweredError as error:
                try:
                    assert call.proxy is not None, "every call that changes a state acts on a proxy"
                    self._remake(proxies[call.proxy])
                except ClusterError:
                    failed, self._unsure = error, True
        if failed is not None:
            raise failed

    def _remake(self, proxy: Link) -> None:
        """Create a proxy again, disabled until it has its current state."""
        name = self._name(proxy)
        self._server.call([Call.delete(name)])
        self._server.call([self._creation(proxy, enabled=False)])
        self._server.call([Call.add_toxic(name, self._toxic(proxy, stream)) for stream in _STREAMS])
        if not {proxy, proxy.back} & self._refused:
            self._server.call([Call.enable(name, True)])
        self.remade.append(name)

    def _toxic(self, proxy: Link, stream: Stream) -> dict[str, Any]:
        return self._sides[proxy, stream].toxic(stream, self._always(proxy, stream))

    def _always(self, proxy: Link, stream: Stream) -> Delay | None:
        return self._delay_of(proxy if stream == "upstream" else proxy.back) if self._network_begun else None

    def _creation(self, proxy: Link, *, enabled: bool = True) -> Call:
        port, behind = self._ports[proxy], self._brokers.port_behind(proxy)
        return self._server.creation(self._name(proxy), port, proxy.target, behind, enabled=enabled)

    def _name(self, proxy: Link) -> str:
        return f"{proxy.source}_to_{proxy.target}{self._suffix}".replace(":", "-")

    @property
    def _server(self) -> ToxiproxyServer:
        assert self._optional_server is not None, "only a proxied link uses the server"
        return self._optional_server


def _is_refused(listener: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(listener, timeout=_CONNECT_TIMEOUT_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
