"""Where a program that is started behind a tap finds it."""

from __future__ import annotations

from rabbitmq_resilience.workload.tap_command import environ_of

PORTS = {"rabbit.example:5672": 4001, "other.example:5673": 4002}


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
