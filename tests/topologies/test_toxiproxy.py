"""A real Toxiproxy between plain sockets: what its links hold, drop and refuse, and how long that takes."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from topologies.cluster import ClusterError
from topologies.links import ToxiproxyLinks, Traffic
from topologies.local import LocalHost
from topologies.places import claim_place
from topologies.reaper import Reaper
from topologies.spec import Link, Topology
from topologies.toxiproxy import Call, ToxiproxyServer
from topologies.waiting import wait_until

SEVEN = Topology(name="seven", zones={"a": 7})
A_B, OF_CLIENT = Link("a1", "a2"), Link("publisher:0", "a1")


class Listener:
    """Stands for every broker: one socket that the kernel accepts connections on."""

    def __init__(self, stack: ExitStack) -> None:
        self.socket = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1000))

    def accepted(self) -> socket.socket:
        """The next connection that somebody uses; those that were only tried are passed over."""
        while True:
            connection, _ = self.socket.accept()
            if connection.recv(1) == b"!":
                return connection
            connection.close()

    def traffic(self, _node: str) -> Mapping[str, Traffic]:
        return {}

    def address(self, _name: str) -> str:
        return "127.0.0.1"

    def port_behind(self, _link: Link) -> int:
        return int(self.socket.getsockname()[1])


class Wires:
    """Both ends of one connection over a proxied link."""

    def __init__(self, stack: ExitStack, listener: Listener, port: int) -> None:
        self.near = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        self.near.send(b"!")
        self.far = stack.enter_context(listener.accepted())
        for end in (self.near, self.far):
            end.settimeout(0.2)

    def passes(self) -> tuple[bool, bool]:
        """Whether a byte gets there, and whether one comes back."""
        self.near.send(b"x")
        self.far.send(b"x")
        return _came(self.far), _came(self.near)


def _came(end: socket.socket) -> bool:
    try:
        return end.recv(100) != b""
    except TimeoutError:
        return False


class Bench:
    def __init__(self, stack: ExitStack, server: ToxiproxyServer, base_port: int) -> None:
        self._stack, self._server, self._base_port = stack, server, base_port
        self._listener = Listener(stack)
        self._ports: dict[Link, int] = {}

    def links(self, *proxies: Link) -> ToxiproxyLinks:
        self._ports = dict(zip(proxies, count(self._base_port), strict=False))
        return ToxiproxyLinks(self._server, self._ports, self._listener)

    def wires(self, link: Link) -> Wires:
        return Wires(self._stack, self._listener, self._ports[link])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    place = claim_place(tmp_path, ports=50)
    with ExitStack() as stack:
        stack.callback(Reaper(place.folder, place.lock_file, place.claim_fds).close)
        server = ToxiproxyServer(LocalHost(place.folder), port=place.base_port, published=[], folder=place.folder)
        stack.callback(server.close)
        server.await_ready()
        yield Bench(stack, server, place.base_port + 1)


def test_a_link_is_cut_both_ways_or_one(bench: Bench) -> None:
    links = bench.links(A_B, A_B.back)
    wires = {link: bench.wires(link) for link in (A_B, A_B.back)}
    links.cut([A_B])
    one_way = {link: wires[link].passes() for link in wires}
    links.cut([A_B.back])
    cut = {link: wires[link].passes() for link in wires}
    links.restore([A_B, A_B.back])

    assert one_way == {A_B: (False, True), A_B.back: (True, False)}
    assert cut == dict.fromkeys(wires, (False, False))
    assert [wires[link].passes() for link in wires] == [(True, True)] * 2
    assert links.clean


def test_a_client_has_one_proxy_for_both_directions(bench: Bench) -> None:
    links = bench.links(OF_CLIENT)
    wires = bench.wires(OF_CLIENT)
    links.cut([OF_CLIENT.back])

    assert links.proxied == {OF_CLIENT, OF_CLIENT.back}
    assert wires.passes() == (True, False)
    links.restore([OF_CLIENT.back])
    assert wires.passes() == (True, True)


def test_refused_links_close_and_open_again(bench: Bench) -> None:
    links = bench.links(A_B, A_B.back, OF_CLIENT)
    wires, others = bench.wires(A_B.back), bench.wires(OF_CLIENT)
    before = links.refuses(A_B)
    links.refuse([A_B, A_B.back])

    assert (before, links.refuses(A_B), links.refuses(A_B.back), links.refuses(OF_CLIENT)) == (False, True, True, False)
    assert wires.near.recv(1) == b""
    assert others.passes() == (True, True)
    assert not links.clean
    links.accept([A_B])
    assert links.refuses(A_B), "its other direction is refused still"
    links.accept([A_B.back])
    assert bench.wires(A_B).passes() == (True, True)


def test_connections_that_died_behind_a_cut_hold_nobody_up(bench: Bench) -> None:
    """They are many, they hold much, and they died in each way there is."""
    links = bench.links(OF_CLIENT)
    dead = [bench.wires(OF_CLIENT) for _ in range(10)]
    links.cut([OF_CLIENT, OF_CLIENT.back])
    for wires in dead:
        for end in [wires.near, wires.far] * 20:
            end.send(b"x" * 1000)
    for i, wires in enumerate(dead):
        for end in (wires.near, wires.far)[: 1 + i % 2]:
            end.close()
    begun = time.monotonic()
    for _ in range(3):
        links.restore([OF_CLIENT, OF_CLIENT.back])
        links.cut([OF_CLIENT, OF_CLIENT.back])
    links.restore([OF_CLIENT, OF_CLIENT.back])
    assert time.monotonic() - begun < 2
    wait_until(lambda: bench.wires(OF_CLIENT).passes() == (True, True), timeout_s=5, what="a connection that works")


def test_all_links_of_seven_nodes_are_cut_in_much_less_than_one_by_one(bench: Bench) -> None:
    """A blip of a few milliseconds must not take longer to begin and to end than it lasts."""
    links = bench.links(*sorted(SEVEN.links))
    together_s, one_by_one_s = [], []
    for _ in range(10):
        begun_s = time.monotonic()
        links.cut(SEVEN.links)
        together_s.append(time.monotonic() - begun_s)
        begun_s = time.monotonic()
        for link in SEVEN.links:
            links.restore([link])
        one_by_one_s.append(time.monotonic() - begun_s)
    assert min(together_s) < min(one_by_one_s) / 2, (together_s, one_by_one_s)


def test_what_toxiproxy_refuses_is_told(bench: Bench) -> None:
    with pytest.raises(ClusterError, match=r"answered POST /proxies/none with 404: .*proxy not found"):
        bench._server.call([Call("GET", "/version"), Call.enable("none", False)])
