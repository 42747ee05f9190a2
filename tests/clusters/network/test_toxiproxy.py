"""A real Toxiproxy between plain sockets: what its links hold, drop and refuse, and how long that takes."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.network_settings import Delay
from rabbitmq_resilience.sut.machine.port_claims import take_claim
from rabbitmq_resilience.sut.machine.reaper import Reaper
from rabbitmq_resilience.sut.network.proxied_links import ConnectionTraffic, ToxiproxyLinks
from rabbitmq_resilience.sut.network.toxiproxy import Call, ToxiproxyServer, UnansweredError
from rabbitmq_resilience.sut.processes.process_cluster import LocalHost
from rabbitmq_resilience.tools.waiting import wait_until

pytestmark = pytest.mark.core

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

    def traffic(self, _node: str) -> Mapping[str, ConnectionTraffic]:
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


class LinkTestbed:
    def __init__(self, stack: ExitStack, server: ToxiproxyServer, base_port: int) -> None:
        self._stack, self.server, self._base_port = stack, server, base_port
        self._listener = Listener(stack)
        self._ports: dict[Link, int] = {}

    def links(self, *proxies: Link, network: Mapping[Link, Delay] | None = None) -> ToxiproxyLinks:
        self._ports = dict(zip(proxies, count(self._base_port), strict=False))
        return ToxiproxyLinks(self.server, self._ports, self._listener, (network or {}).get)

    def wires(self, link: Link) -> Wires:
        return Wires(self._stack, self._listener, self._ports[link])


@pytest.fixture
def testbed(tmp_path: Path) -> Iterator[LinkTestbed]:
    claim = take_claim(tmp_path, ports=50)
    with ExitStack() as stack:
        stack.callback(Reaper(claim.folder, claim.lock_file, claim.claim_fds).close)
        server = ToxiproxyServer(LocalHost(claim.folder), port=claim.base_port, published=[], folder=claim.folder)
        stack.callback(server.close)
        server.await_ready()
        yield LinkTestbed(stack, server, claim.base_port + 1)


def test_a_link_is_cut_both_ways_or_one(testbed: LinkTestbed) -> None:
    links = testbed.links(A_B, A_B.back)
    wires = {link: testbed.wires(link) for link in (A_B, A_B.back)}
    links.cut([A_B])
    one_way = {link: wires[link].passes() for link in wires}
    links.cut([A_B.back])
    cut = {link: wires[link].passes() for link in wires}
    links.restore([A_B, A_B.back])

    assert one_way == {A_B: (False, True), A_B.back: (True, False)}
    assert cut == dict.fromkeys(wires, (False, False))
    assert [wires[link].passes() for link in wires] == [(True, True)] * 2
    assert links.clean


def test_the_network_is_near_until_it_begins(testbed: LinkTestbed) -> None:
    links = testbed.links(A_B, A_B.back, network={A_B: Delay(latency_ms=600)})
    wires = testbed.wires(A_B)
    before = wires.passes()
    links.begin_network()
    assert before == (True, True)
    assert wires.passes() == (False, True)
    assert links.clean


def test_a_client_has_one_proxy_for_both_directions(testbed: LinkTestbed) -> None:
    links = testbed.links(OF_CLIENT)
    wires = testbed.wires(OF_CLIENT)
    links.cut([OF_CLIENT.back])

    assert links.proxied == {OF_CLIENT, OF_CLIENT.back}
    assert wires.passes() == (True, False)
    links.restore([OF_CLIENT.back])
    assert wires.passes() == (True, True)


def test_refused_links_close_and_open_again(testbed: LinkTestbed) -> None:
    links = testbed.links(A_B, A_B.back, OF_CLIENT)
    wires, others = testbed.wires(A_B.back), testbed.wires(OF_CLIENT)
    before = links.refuses(A_B)
    links.refuse([A_B, A_B.back])

    assert (before, links.refuses(A_B), links.refuses(A_B.back), links.refuses(OF_CLIENT)) == (False, True, True, False)
    assert wires.near.recv(1) == b""
    assert others.passes() == (True, True)
    assert not links.clean
    links.accept([A_B])
    assert links.refuses(A_B), "its other direction is refused still"
    links.accept([A_B.back])
    assert testbed.wires(A_B).passes() == (True, True)


def test_connections_that_died_behind_a_cut_hold_no_one_up(testbed: LinkTestbed) -> None:
    """They are many, they hold much, and they died in each way there is."""
    links = testbed.links(OF_CLIENT)
    dead = [testbed.wires(OF_CLIENT) for _ in range(10)]
    links.cut([OF_CLIENT, OF_CLIENT.back])
    for wires in dead:
        for end in [wires.near, wires.far] * 20:
            end.send(b"x" * 1000)
    for i, wires in enumerate(dead):
        for end in (wires.near, wires.far)[: 1 + i % 2]:
            end.close()
    for _ in range(3):
        links.restore([OF_CLIENT, OF_CLIENT.back])
        links.cut([OF_CLIENT, OF_CLIENT.back])
    links.restore([OF_CLIENT, OF_CLIENT.back])
    wait_until(lambda: testbed.wires(OF_CLIENT).passes() == (True, True), timeout_s=60, what="a connection that works")


class Hanging(ToxiproxyServer):
    """One proxy answers no call that changes it, until it is made anew, if it can be."""

    hung: str | None = None
    for_ever = False

    def call(self, calls: Sequence[Call]) -> None:
        for call in calls:
            if self.hung is not None and call.proxy == self.hung:
                if self.for_ever or call.method != "DELETE":
                    raise UnansweredError("Toxiproxy did not answer")
                self.hung = None
            super().call([call])


@pytest.fixture
def hanging(testbed: LinkTestbed) -> Hanging:
    """In claim of the server of the testbed."""
    server = Hanging.__new__(Hanging)
    server.__dict__.update(testbed.server.__dict__)
    testbed.server = server
    return server


def test_a_proxy_that_cannot_be_made_again_keeps_no_other_from_being_restored(
    testbed: LinkTestbed, hanging: Hanging
) -> None:
    links = testbed.links(A_B, A_B.back, OF_CLIENT)
    wires = {link: testbed.wires(link) for link in (A_B, A_B.back, OF_CLIENT)}
    links.cut(list(wires))
    hanging.hung, hanging.for_ever = "a1_to_a2", True
    with pytest.raises(UnansweredError):
        links.restore(list(wires))

    assert wires[OF_CLIENT].passes()[0]
    assert not links.clean, "nobody knows what passes over the other"


def test_a_proxy_that_hangs_is_made_again_as_it_is_to_be_and_no_other_is(
    testbed: LinkTestbed, hanging: Hanging
) -> None:
    links = testbed.links(A_B, A_B.back, OF_CLIENT)
    wires = {link: testbed.wires(link) for link in (A_B, A_B.back, OF_CLIENT)}
    links.cut([OF_CLIENT.back])
    hanging.hung = "a1_to_a2"
    links.cut([A_B, OF_CLIENT])

    assert links.remade == ["a1_to_a2"]
    assert wires[A_B].near.recv(1) == b""
    assert not links.clean
    assert wires[A_B.back].passes() == (True, False)
    assert wires[OF_CLIENT].passes() == (False, False)
    links.restore([A_B, OF_CLIENT, OF_CLIENT.back])
    assert testbed.wires(A_B).passes() == (True, True)
    assert wires[OF_CLIENT].passes() == (True, True)
    assert links.clean
    hanging.hung = "a1_to_a2"
    links.refuse([A_B])
    assert (links.refuses(A_B), links.remade) == (True, ["a1_to_a2", "a1_to_a2"])


def test_what_toxiproxy_refuses_is_reported(testbed: LinkTestbed) -> None:
    with pytest.raises(ClusterError, match=r"POST /proxies/none with 404"):
        testbed.server.call([Call("GET", "/version"), Call.enable("none", False)])
