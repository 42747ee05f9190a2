"""Measure raw round trips over the network paths of the load: 1,000 bytes to an echo server and back.

Each link that carries a proxy has a second proxy with the same delays, cuts and refusals. The second proxy leads to an
echo server instead of the broker. A path without a proxy goes to the echo server directly. A round trip crosses both
directions of a path, so that broker to consumer is the same as publisher to broker.
"""

from __future__ import annotations

import secrets
import selectors
import time
from collections.abc import Collection, Mapping
from contextlib import suppress

from rabbitmq_resilience.model.links import ANY_CLIENT, Link
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.handshake import Greeting, Probe
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK
from rabbitmq_resilience.tools.closing import Closing

ROUND_TRIP_BYTES = 1000
#: A round trip that takes longer counts as unanswered.
LOST_AFTER_S = 2.0
_POLL_S = 0.05
_CONNECT_TIMEOUT_S = 0.5


def ways(topology: Topology, proxied: Collection[Link]) -> list[Link]:
    """Return the measured paths: between each pair of brokers, from all clients to the places they connect to, from
    each client that has links of its own, and from balancers to brokers."""
    pairs = {link for link in topology.links if link.source < link.target}
    clients = {Link(ANY_CLIENT, place) for place in topology.balancer_names or topology.client_nodes}
    behind = {Link(balancer, node) for balancer in topology.balancer_names for node in topology.client_nodes}
    own = {link for link in proxied if link.client == link.source}
    return sorted(pairs | clients | behind | own)


class RoundTrips(Closing):
    """Connections to the echo server: by proxies, or directly."""

    def __init__(self, over: Collection[Link], ports: Mapping[Link, int], echo_port: int) -> None:
        """Prepare connections for the paths ``over``. ``ports`` are the proxies' ports; other paths use
        ``echo_port``."""
        self._addresses = {way: (LOOPBACK, ports.get(way, echo_port)) for way in over}
        payload = secrets.token_bytes(ROUND_TRIP_BYTES)
        self._greeting = Greeting(payload, lambda answer: answer == payload, ROUND_TRIP_BYTES)
        self._probes: dict[Link, Probe] = {}

    def measure(self) -> Mapping[Link, float | None]:
        """Measure one round trip over each path, all at once. Return them in ms; None if unanswered after 2 s."""
        took: dict[Link, float | None] = dict.fromkeys(self._addresses)
        sent_s: dict[Link, float] = {}
        for way in self._addresses:
            with suppress(OSError):
                probe = self._probe(way)
                sent_s[way] = time.monotonic()
                probe.send()
        ends_s = time.monotonic() + LOST_AFTER_S
        with selectors.DefaultSelector() as selector:
            for way in sent_s:
                selector.register(self._probes[way], selectors.EVENT_READ, way)
            while selector.get_map() and time.monotonic() < ends_s:
                for key, _ in selector.select(_POLL_S):
                    selector.unregister(key.fileobj)
                    with suppress(OSError):
                        answered_s = self._probes[key.data].receive(timeout_s=0)
                        took[key.data] = None if answered_s is None else 1000 * (answered_s - sent_s[key.data])
        for way in [way for way, ms in took.items() if ms is None and way in self._probes]:
            self._probes.pop(way).close()  # a late answer must not count for the next round trip
        return took

    def close(self) -> None:
        while self._probes:
            self._probes.popitem()[1].close()

    def _probe(self, way: Link) -> Probe:
        if way not in self._probes:
            self._probes[way] = Probe.to(self._addresses[way], self._greeting, timeout_s=_CONNECT_TIMEOUT_S)
        return self._probes[way]
