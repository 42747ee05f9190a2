"""Which Erlang is supported is read from a table, held against each line of RabbitMQ's own matrix."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.tools.erlang_support import refusal
from tests.messages import Messages

#: Releases, and the least and newest Erlang, as the matrix has them.
MATRIX = [
    ("4.3.6", "27.0", "28.5"),
    ("4.3.5 4.3.4 4.3.3 4.2.11 4.2.10 4.2.9", "27.0", "27.3.4.1"),
    ("4.3.2 4.3.0 4.2.8 4.2.0 4.1.4 4.1.0 4.0.9 4.0.5 4.0.4", "26.2", "27.3.4.1"),
    ("4.0.3 4.0.1", "26.2", "26.2.5"),
    ("3.13.7 3.13.0", "26.0", "26.2.5"),
    ("3.12.13 3.12.0", "25.0", "26.0"),
    ("3.11.28 3.11.0", "25.0", "25.3.2"),
    ("3.10.25 3.10.19", "24.3.4.8", "25.3.2"),
    ("3.10.13 3.10.8", "24.2", "25.2.3"),
    ("3.9.29 3.9.28", "24.3.4.2", "25.2"),
    ("3.8.15 3.8.9", "22.3", "23.3"),
]
EACH = [pytest.param(v, least, newest, id=v) for versions, least, newest in MATRIX for v in versions.split()]


@pytest.mark.parametrize(("rabbitmq", "least", "newest"), EACH)
def test_each_line_of_the_matrix(rabbitmq: str, least: str, newest: str) -> None:
    series, older = newest.partition(".")[0], int(least.partition(".")[0]) - 1
    assert not refusal(rabbitmq, least)
    assert not refusal(rabbitmq, newest)
    assert refusal(rabbitmq, f"{older}.3.9")
    assert refusal(rabbitmq, f"{int(series) + 1}.0")


def test_a_refusal_says_what_is_supported(message: Messages) -> None:
    message(refusal("4.3.6", "29.1.2"))


def test_numbers_of_pre_releases_and_packages_count() -> None:
    assert refusal("4.3.0-rc.1", "29.0")
    assert not refusal("4.3.7", "29.1.2")
    assert refusal("3.10.8", "27.3.4.1+dfsg")


@pytest.mark.parametrize(("rabbitmq", "erlang"), [("5.0.0", "31.0"), ("3.7.28", "22.3"), ("4.0.5", "")])
def test_nothing_is_said_of_what_is_not_known(rabbitmq: str, erlang: str) -> None:
    assert not refusal(rabbitmq, erlang)
