"""The network that a topology states: what may be said, which links it slows, and how round trips are measured."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from pydantic import ValidationError

from rabbitmq_resilience.model.links import ANY_CLIENT, Link
from rabbitmq_resilience.model.network_settings import Delay
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut import round_trip_probes
from rabbitmq_resilience.sut.network.proxied_links import ProxySide
from rabbitmq_resilience.sut.round_trip_probes import RoundTrips, ways
from tests.messages import Messages


def topology(**fields: Any) -> Topology:
    return Topology.model_validate({"name": "far", "zones": {"a": 2, "b": 1}, **fields})


#: Pydantic's errors name its version.
PYDANTIC = {r"https://errors\.pydantic\.dev/[^/]+/": "PYDANTIC/"}

FAR = {"between_zones": {"latency_ms": 5, "jitter_ms": 1}}


def test_brokers_of_different_zones_are_far_apart() -> None:
    far = topology(network=FAR)
    assert far.network_links == {link for link in far.links if {link.source[0], link.target[0]} == {"a", "b"}}
    assert far.delay_of(Link("a1", "b1")) == Delay(latency_ms=5, jitter_ms=1)
    assert far.delay_of(Link("a1", "a2")) is None


def test_clients_share_links_to_what_they_connect_to() -> None:
    clients = {"clients": {"latency_ms": 1}}
    to_nodes = {Link(ANY_CLIENT, "a1"), Link(ANY_CLIENT, "b1")}
    plain = topology(network=clients, without_clients=["a2"])
    assert plain.network_links == to_nodes | {link.back for link in to_nodes}
    balanced = topology(network={**clients, "balancers": {"latency_ms": 2}}, balancers=1)
    assert Link(ANY_CLIENT, "balancer:0") in balanced.network_links
    assert Link("balancer:0", "a2") in balanced.network_links
    assert Link(ANY_CLIENT, "a1") not in balanced.network_links
    assert balanced.delay_of(Link("publisher:3", "balancer:0")) == Delay(latency_ms=1)


@pytest.mark.parametrize(
    ("network", "place"),
    [
        ({"between_zones": {"latency_ms": 0.5}}, "network.between_zones.latency_ms"),
        ({"between_zones": {"latency_ms": 0}}, "network.between_zones.latency_ms"),
        ({"between_zones": {"latency_ms": 2, "jitter_ms": 2}}, "network.between_zones"),
        ({"between_zones": {"latency_ms": 1300, "jitter_ms": 1}}, "between_zones"),
        ({"within_zones": {"latency_ms": 1400}}, "within_zones"),
        ({"clients": {"latency_ms": 600}, "balancers": {"latency_ms": 201}}, "clients"),
        ({"zones": {"latency_ms": 2}}, "network.zones"),
        ({"balancers": {"latency_ms": 2}}, "network"),
    ],
)
def test_what_makes_no_sense_is_refused(network: dict[str, Any], place: str, message: Messages) -> None:
    with message.of(ValidationError, hide=PYDANTIC) as refused:
        topology(network=network)
    assert place in str(refused.value)


def test_a_fault_adds_to_the_network_and_a_cut_is_a_cut() -> None:
    always = Delay(latency_ms=5, jitter_ms=1)
    assert ProxySide().toxic("upstream", always)["attributes"] == {"latency": 5, "jitter": 1}
    slow = ProxySide(latency_ms=80, jitter_ms=20)
    assert slow.toxic("upstream", always)["attributes"] == {"latency": 85, "jitter": 21}
    assert ProxySide(cut=True).toxic("upstream", always) == ProxySide(cut=True).toxic("upstream")


def test_each_way_of_the_load_is_measured_once() -> None:
    own = [Link("publisher:0", "a1"), Link("a1", "b1"), Link("b1", "a1")]
    assert ways(topology(), own) == [
        Link("a1", "a2"),
        Link("a1", "b1"),
        Link("a2", "b1"),
        *(Link(ANY_CLIENT, node) for node in ("a1", "a2", "b1")),
        Link("publisher:0", "a1"),
    ]
    assert Link("balancer:0", "a1") in ways(topology(balancers=1), [])
    assert Link(ANY_CLIENT, "a1") not in ways(topology(balancers=1), [])


@contextmanager
def listening(*, answers: bool) -> Iterator[int]:
    """An echo, or somebody who accepts and says nothing; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    accepted.append(connection)
                    while answers and (piece := connection.recv(4096)):
                        connection.sendall(piece)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in accepted:
                connection.close()


@pytest.mark.core
def test_a_way_that_answers_is_distinguished_from_those_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_trip_probes, "LOST_AFTER_S", 0.5)
    answered, silent, refused = Link("a1", "b1"), Link("a1", "a2"), Link("a2", "b1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = listener.getsockname()[1]
    with (
        listening(answers=True) as echo,
        listening(answers=False) as mute,
        RoundTrips([answered, silent, refused], {silent: mute, refused: nobody}, echo) as measured,
    ):
        first = measured.measure()
    took_ms = first[answered]
    assert took_ms is not None
    assert 0 < took_ms < 1000 * round_trip_probes.LOST_AFTER_S
    assert first[silent] is None
    assert first[refused] is None
