"""How the ends of a connection go through a tap, and when they are recorded."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.tap.method_rules import MethodRule
from rabbitmq_resilience.tap.tap import Tap
from rabbitmq_resilience.tools.waiting import wait_until
from tests.tap.frames import ALIVE, PROTOCOL, content, method
from tests.tap.peers import WITHIN_S, Peer, connected, received
from tests.tap.records import only, said

pytestmark = pytest.mark.core


def test_the_end_of_one_direction_leaves_the_other(tmp_path: Path) -> None:
    """Also where a rule holds a frame back, and only a part of the last one came."""
    held = method(1, (60, 40)) + b"".join(content(1, b"held"))
    sent = PROTOCOL + held + ALIVE + ALIVE[:5]
    got: list[bytes] = []

    def answering(peer: socket.socket) -> None:
        got.append(b"".join(iter(lambda: peer.recv(1 << 16), b"")))
        peer.sendall(b"after the end")

    with Peer(answering) as peer, Tap(tmp_path) as tap:
        port = tap.listen("app", "a1", Endpoint("127.0.0.1", peer.port))
        tap.add_rule(MethodRule(method="basic.publish", treatment="hold", for_s=3_600))
        with connected(port) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            assert received(client, 100) == b"after the end"
    assert len(got[0]) == len(sent)
    assert sorted(got[0]) == sorted(sent)
    assert held in got[0]
    assert only(tmp_path, "lost").fields["by"] == "client"


def test_a_client_that_keeps_a_connection_has_lost_it_at_its_brokers_end(tmp_path: Path) -> None:
    """It is recorded then, and not when the client closes it."""
    serves = threading.Event()

    def ending(peer: socket.socket) -> None:
        peer.sendall(received(peer, len(PROTOCOL)))
        peer.shutdown(socket.SHUT_WR)
        serves.wait(WITHIN_S)

    with Peer(ending) as peer, Tap(tmp_path) as tap:
        port = tap.listen("app", "a1", Endpoint("127.0.0.1", peer.port))
        with connected(port) as client:
            client.sendall(PROTOCOL)
            assert received(client, 100) == PROTOCOL
            wait_until(lambda: "lost" in said(tmp_path), timeout_s=WITHIN_S, what="the end of the broker")
            assert said(tmp_path) == ["opened", "lost"]
        serves.set()
    assert said(tmp_path) == ["opened", "lost", "closed"]
    assert only(tmp_path, "lost").fields["by"] == "broker"


def test_the_end_of_a_client_is_recorded_before_its_broker_answers(tmp_path: Path) -> None:
    """A frozen broker does not answer for long."""
    serves = threading.Event()

    def silent(peer: socket.socket) -> None:
        peer.sendall(received(peer, len(PROTOCOL)))
        serves.wait(WITHIN_S)

    with Peer(silent) as peer, Tap(tmp_path) as tap:
        with connected(tap.listen("app", "a1", Endpoint("127.0.0.1", peer.port))) as client:
            client.sendall(PROTOCOL)
            assert received(client, len(PROTOCOL)) == PROTOCOL
        wait_until(lambda: "lost" in said(tmp_path), timeout_s=WITHIN_S, what="the end of the client")
        assert said(tmp_path) == ["opened", "lost"]
        serves.set()
    assert only(tmp_path, "lost").fields["by"] == "client"


def test_a_reset_of_the_broker_is_recorded_while_its_client_reads_nothing(tmp_path: Path) -> None:
    def flooding(peer: socket.socket) -> None:
        """Send until nothing goes on any more, and reset the connection."""
        peer.settimeout(1)
        with suppress(TimeoutError):
            while True:
                peer.sendall(bytes(1 << 16))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with (
        Peer(flooding) as peer,
        Tap(tmp_path) as tap,
        connected(tap.listen("app", "a1", Endpoint("127.0.0.1", peer.port))) as client,
    ):
        client.sendall(PROTOCOL)
        wait_until(lambda: "lost" in said(tmp_path), timeout_s=WITHIN_S, what="the end of the broker")
    assert only(tmp_path, "lost").fields["by"] == "broker"


def test_a_reset_reaches_the_other_side(tmp_path: Path) -> None:
    ended = threading.Event()

    def waiting(peer: socket.socket) -> None:
        peer.sendall(PROTOCOL)
        try:
            while peer.recv(100):
                pass
        except ConnectionResetError:
            ended.set()

    with Peer(waiting) as peer, Tap(tmp_path) as tap:
        port = tap.listen("app", "a1", Endpoint("127.0.0.1", peer.port))
        client = connected(port)
        received(client, 8)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        client.close()
        assert ended.wait(WITHIN_S)
    assert only(tmp_path, "lost").fields["by"] == "client"
