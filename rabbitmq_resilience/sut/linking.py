"""Start the proxies of a cluster's links, and the echo server that measures round trips over them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.sut.broker_host import Host
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK
from rabbitmq_resilience.sut.network import echo
from rabbitmq_resilience.sut.network.proxied_links import BrokerQueries, ConnectionTraffic, ToxiproxyLinks
from rabbitmq_resilience.sut.network.toxiproxy import ToxiproxyServer
from rabbitmq_resilience.sut.port_layout import PortLayout
from rabbitmq_resilience.sut.round_trip_probes import RoundTrips, ways
from rabbitmq_resilience.tools.locations import IMPORTED_FROM


@dataclass(frozen=True)
class _Echo:
    """The echo server, which takes the place of every broker behind the proxies for round trips."""

    port: int

    def traffic(self, node: str) -> Mapping[str, ConnectionTraffic]:  # noqa: ARG002 - one form for all
        return {}

    def port_behind(self, link: Link) -> int:  # noqa: ARG002 - one form for all
        return self.port

    def address(self, name: str) -> str:  # noqa: ARG002 - one form for all
        return LOOPBACK


def start_links(host: Host, layout: PortLayout, brokers: BrokerQueries, stack: ExitStack) -> ToxiproxyLinks:
    """Start the proxies and the echo server that the layout needs, and return the links. All programs end with
    ``stack``."""
    if layout.echo_port is not None:
        arguments, environ = ["-m", echo.__name__, str(layout.echo_port)], {"PYTHONPATH": str(IMPORTED_FROM)}
        log = layout.folder / "echo.log"
        started = host.serve("echo", arguments, environ, ports=[layout.echo_port], folder=layout.folder, log=log)
        stack.callback(started.close)
    if not layout.link_ports:
        return ToxiproxyLinks(None, {}, brokers)
    of_clients = [port for link, port in layout.link_ports.items() if link.client is not None]
    server = ToxiproxyServer(host, port=layout.toxiproxy_port, published=of_clients, folder=layout.folder)
    stack.callback(server.close)
    server.await_ready()
    delay_of, shadow = layout.topology.delay_of, None
    if layout.echo_port is not None:
        shadow = ToxiproxyLinks(server, layout.echo_ports, _Echo(layout.echo_port), delay_of, suffix="_echo")
    return ToxiproxyLinks(server, layout.link_ports, brokers, delay_of, shadow=shadow)


def round_trips(layout: PortLayout) -> RoundTrips | None:
    """Return the measurement of round trips; None if there is no echo server, as the topology states no network."""
    if layout.echo_port is None:
        return None
    return RoundTrips(ways(layout.topology, layout.echo_ports), layout.echo_ports, layout.echo_port)
