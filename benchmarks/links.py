"""Measure how fast links are cut and restored, compared with the time that a fault has for it.

A blip of a few milliseconds must not take longer to begin and to end than it lasts. A link that flaps ten times a
second must be cut as often. The peer: the same calls to the same Toxiproxy, one after another on a connection of their
own, as a client of its HTTP API makes them. Run it on an idle machine; it needs no broker.

    .venv/bin/python -m benchmarks.links [--nodes 7] [--times 200]

The exit status is 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median, quantiles

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK, take_claim
from rabbitmq_resilience.sut.machine.reaper import Reaper
from rabbitmq_resilience.sut.network.proxied_links import ConnectionTraffic, ToxiproxyLinks
from rabbitmq_resilience.sut.network.toxiproxy import ToxiproxyServer
from rabbitmq_resilience.sut.processes.process_cluster import LocalHost

#: The largest share of the time that the same calls take for one link after another.
RATIO_MAX = 0.5
#: The shortest period of ``flapping``.
PERIOD_S = 0.1


class FakeBrokers:
    """The stand-in for every broker: one listener, on which the kernel accepts connections."""

    def __init__(self, listener: socket.socket) -> None:
        self._port = int(listener.getsockname()[1])

    def traffic(self, _node: str) -> Mapping[str, ConnectionTraffic]:
        return {}

    def address(self, _name: str) -> str:
        return LOOPBACK

    def port_behind(self, _link: Link) -> int:
        return self._port


@contextmanager
def proxied(links: Collection[Link]) -> Iterator[ToxiproxyLinks]:
    """Yield ``links`` on a Toxiproxy of their own."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="links-")))
        claim = take_claim(root, ports=1 + len(links))
        stack.callback(Reaper(claim.folder, claim.lock_file, claim.claim_fds).close)
        server = ToxiproxyServer(LocalHost(claim.folder), port=claim.base_port, published=[], folder=claim.folder)
        stack.callback(server.close)
        server.await_ready()
        listener = stack.enter_context(socket.create_server((LOOPBACK, 0), backlog=1000))
        yield ToxiproxyLinks(
            server, dict(zip(sorted(links), count(claim.base_port + 1), strict=False)), FakeBrokers(listener)
        )


def took_ms(act: Callable[[], None]) -> float:
    begun_s = time.monotonic()
    act()
    return (time.monotonic() - begun_s) * 1000


def one_by_one(act: Callable[[Collection[Link]], None], links: Collection[Link]) -> Callable[[], None]:
    def acted() -> None:
        for link in links:
            act([link])

    return acted


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, default=7, choices=range(2, 8))
    parser.add_argument("--times", type=int, default=200)
    options = parser.parse_args()
    links = Topology(name="measured", zones={"a": options.nodes}).links
    blips, singles = [], []
    with proxied(links) as carried:
        for _ in range(options.times):
            cut_ms = took_ms(lambda: carried.cut(links))
            blips.append(cut_ms + took_ms(lambda: carried.restore(links)))
        for _ in range(max(2, options.times // 10)):
            cut_ms = took_ms(one_by_one(carried.cut, links))
            singles.append(cut_ms + took_ms(one_by_one(carried.restore, links)))
    ratio, worst_ms = median(blips) / median(singles), quantiles(blips, n=100)[98]
    print(f"{len(links)} links of {options.nodes} nodes, cut and restored {options.times} times")
    print(f"at once       {median(blips):7.1f} ms (median), {worst_ms:.1f} ms (99th percentile)")
    print(f"one by one    {median(singles):7.1f} ms (median)")
    print(f"ratio         {ratio:7.2f} (at most {RATIO_MAX} wanted)")
    print(f"of a flap's {PERIOD_S:g} s: {worst_ms / PERIOD_S / 1000:.0%} by the 99th percentile (at most 50% wanted)")
    return 1 if ratio > RATIO_MAX or worst_ms > PERIOD_S * 1000 / 2 else 0


if __name__ == "__main__":
    raise SystemExit(main())
