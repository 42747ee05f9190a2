"""A tap that speaks TLS to clients, with a certificate that it made."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.tap.tap import Tap
from rabbitmq_resilience.tools.waiting import wait_until
from tests.tap.frames import ALIVE, PROTOCOL
from tests.tap.peers import WITHIN_S, Peer, connected, echo, received
from tests.tap.records import said

pytestmark = pytest.mark.core


def secured(tap: Tap, port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=tap.ca_file)
    return context.wrap_socket(connected(port), server_hostname="127.0.0.1")


def test_clients_speak_tls_and_the_broker_hears_it_plainly(tmp_path: Path) -> None:
    with Peer(echo) as broker, Tap(tmp_path) as tap:
        ports = [
            tap.listen("app", node, Endpoint("127.0.0.1", broker.port), made_certificate=True) for node in ("a1", "b1")
        ]
        for port in ports:
            with secured(tap, port) as client:
                client.sendall(PROTOCOL + ALIVE)
                assert received(client, 16) == PROTOCOL + ALIVE
    assert said(tmp_path).count("opened") == len(ports)
    assert "unreadable" not in said(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if b"PRIVATE KEY" in path.read_bytes()] == []


def test_a_broker_that_refuses_is_one_that_refuses_with_tls(tmp_path: Path) -> None:
    """Until it serves again."""
    with socket.create_server(("127.0.0.1", 0)) as nothing:
        port = nothing.getsockname()[1]
    with Tap(tmp_path) as tap:
        listening = tap.listen("app", "a1", Endpoint("127.0.0.1", port), made_certificate=True)

        def refused() -> bool:
            try:
                secured(tap, listening).close()
            except ConnectionRefusedError:
                return True
            except OSError:  # it came before the tap had tried the broker
                pass
            return False

        wait_until(refused, timeout_s=WITHIN_S, what="connections to be refused")
        with socket.create_server(("127.0.0.1", port)):
            wait_until(lambda: not refused(), timeout_s=WITHIN_S, what="connections to be accepted")
