"""Where a program that is started behind a tap finds it."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.workload.tap_command import environ_of

PORTS = {("rabbit.example", 5672): 4001, ("other.example", 5673): 4002}


def test_a_program_finds_the_tap_by_host_and_by_url() -> None:
    assert environ_of(PORTS, {"HOME": "/me"}, scheme="amqp") == {
        "HOME": "/me",
        "AMQP_HOST": "127.0.0.1",
        "AMQP_PORT": "4001",
        "AMQP_URL": "amqp://127.0.0.1:4001",
        "AMQP_URLS": "amqp://127.0.0.1:4001,amqp://127.0.0.1:4002",
    }


def test_urls_of_the_user_keep_login_and_virtual_host() -> None:
    stated = {
        "AMQP_URL": "amqp://me:p%40ss@rabbit.example/shop",
        "AMQP_URLS": "amqp://me:x@other.example:5673/shop?heartbeat=5,amqp://third.example/,no address",
    }
    environ = environ_of(PORTS, stated, scheme="amqps")
    assert environ["AMQP_URL"] == "amqps://me:p%40ss@127.0.0.1:4001/shop"
    first, *others = environ["AMQP_URLS"].split(",")
    assert first == "amqps://me:x@127.0.0.1:4002/shop?heartbeat=5"
    assert others == ["amqp://third.example/", "no address"], "they name no broker of the tap"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://u:p@Rabbit.Example/v", "amqp://u:p@127.0.0.1:7001/v"),
        ("amqp://rabbit.example:5672", "amqp://127.0.0.1:7001"),
        ("amqps://rabbit.example", "amqps://rabbit.example"),
        ("amqp://u:a,b@rabbit.example/v?heartbeat=5", "amqp://u:a,b@127.0.0.1:7001/v?heartbeat=5"),
        ("amqp://u:p@[::1]:5673/v", "amqp://u:p@127.0.0.1:7002/v"),
        ("amqp://elsewhere/v", "amqp://elsewhere/v"),
        ("amqp://u:p[x@rabbit.example/v", "amqp://u:p[x@rabbit.example/v"),
        ("", ""),
    ],
)
def test_urls_of_tapped_brokers_lead_to_the_tap(url: str, expected: str) -> None:
    ports = {("rabbit.example", 5672): 7001, ("::1", 5673): 7002}
    both = f"{url},amqp://u:c,d@rabbit.example/w"
    environ = environ_of(ports, {"AMQP_URL": url, "AMQP_URLS": both}, scheme="amqp")
    assert environ["AMQP_URL"] == expected
    assert environ["AMQP_URLS"] == f"{expected},amqp://u:c,d@127.0.0.1:7001/w"
    assert (environ["AMQP_HOST"], environ["AMQP_PORT"]) == ("127.0.0.1", "7001")
