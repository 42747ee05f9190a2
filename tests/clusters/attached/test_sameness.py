"""Whether all addresses of a cluster file lead to one cluster, by what nodes tell of each other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached.same_cluster import mixed
from rabbitmq_resilience.model.access import Access, Endpoint
from rabbitmq_resilience.sut.broker.server_properties import server_properties
from tests.messages import Messages


def row(name: str, **of: Any) -> Mapping[str, Any]:
    return {"name": name, "running": True, **of}


H1, H2 = row("h1", os_pid="21", uptime=900_000), row("h2", os_pid="22", uptime=800_000)


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ([H1, H2], ""),
        ([H2, {**H1, "uptime": 903_000}], ""),
        ([row("h1"), row("h2")], ""),
        ([row("h2", os_pid="22", uptime=800_000)], "h1, h2"),
        ([H1, H2, row("h3")], "h1, h2, h3"),
        ([H1, {**H2, "os_pid": "23"}], "h1 and h2"),
        ([H1, {**H2, "uptime": 5_000}], "h1 and h2"),
    ],
)
def test_all_nodes_tell_of_the_same_members(second: list[Mapping[str, Any]], told: str, message: Messages) -> None:
    found = "".join(mixed({"h1": [H1, H2], "h2": second}))
    assert told in found
    assert bool(told) == bool(found)
    if found:
        message(found)


@pytest.mark.core
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\x00\x00\x09\x01", b""])
def test_what_is_no_broker_is_reported(answer: bytes, message: Messages) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answered() -> None:
            connected, _ = server.accept()
            with connected:
                connected.recv(8)
                connected.sendall(answer)

        thread = threading.Thread(target=answered)
        thread.start()
        endpoint = Endpoint("127.0.0.1", server.getsockname()[1])
        with message.of(OSError):
            server_properties(endpoint, Access(), timeout_s=5)
        thread.join()
