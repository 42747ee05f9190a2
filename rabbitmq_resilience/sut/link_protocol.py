"""Define what can be observed of a cluster's links and done to them, each part as a protocol of its own.

Two brokers share one connection, opened by either, so what acts on the directed link a->b acts on the upstream side of
the proxy a->b *and* the downstream side of the proxy b->a. A client's link to a node has one proxy for both directions.
Each call acts on all given links at once. It skips links that carry no proxy; the proof then shows that the fault has
no effect there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.sut.broker.handshake import Probe


class ProxiedLinks(Protocol):
    """The links that proxies carry."""

    @property
    def proxied(self) -> frozenset[Link]:
        """Return the directed links that a proxy carries: always both directions of a pair."""
        ...

    @property
    def remade(self) -> Sequence[str]:
        """Return the names of the proxies that hung and were created again, once for each time. Creating a proxy again
        ends its connections."""
        ...


class LinkCuts(Protocol):
    """Cut links silently, or refuse their connections."""

    def cut(self, links: Collection[Link]) -> None:
        """Hold back all bytes on the links until ``restore``. No connection is closed."""
        ...

    def restore(self, links: Collection[Link]) -> None:
        """Undo ``cut``. The held bytes arrive on connections that both ends have kept open."""
        ...

    def refuse(self, links: Collection[Link]) -> None:
        """End all connections on the links at once, whichever end opened them, and refuse new ones."""
        ...

    def accept(self, links: Collection[Link]) -> None:
        """Undo ``refuse``."""
        ...

    def refuses(self, link: Link) -> bool:
        """Return whether a connection over ``link`` is refused now, whichever end opens it."""
        ...

    def attested(self, links: Collection[Link]) -> Mapping[Link, bool] | None:
        """Return {link: whether it is cut now} for the links between brokers, if the command that cuts them can check
        this; links for which the check gives no answer are left out. Return None if only probes can."""
        ...


class LinkDelays(Protocol):
    """Delay all bytes on links."""

    def delay(self, links: Collection[Link], *, latency_ms: int, jitter_ms: int) -> None: ...

    def undelay(self, links: Collection[Link]) -> None: ...


class LinkProbes(Protocol):
    """Send probes over links."""

    def probe(self, link: Link, *, direct: bool = False) -> Probe | None:
        """Open a connection for a probe over ``link``. ``direct``: connect to the same listener, but bypass the proxy.
        Return None if the connection is not accepted or the link has no proxy."""
        ...

    def probe_ms(self, link: Link, *, timeout_s: float, direct: bool = False) -> float | None:
        """Return the round trip of a probe over the directed link, in ms. The answer crosses the reverse link.
        ``direct``: bypass the proxy. Return None if there is no answer or no proxy."""
        ...

    def server_answers(self) -> bool:
        """Return whether the proxy server answers a call now, that is, whether the busy machine gives it CPU time."""
        ...


class LinkTraffic(Protocol):
    """Observe what brokers themselves send over links between them."""

    def connection(self, link: Link) -> str | None:
        """Return the name of the connection from the source to the target of a link between brokers, at most 0.2 s old.
        Return None while there is no connection. Each connection of a broker has a different name."""
        ...

    def held_bytes(self, link: Link) -> int | None:
        """Return how many bytes the proxy of a link between brokers has received and not yet delivered; None if the
        link carries no proxy."""
        ...


class Links(ProxiedLinks, LinkCuts, LinkDelays, LinkProbes, LinkTraffic, Protocol):
    """The links of one cluster."""
