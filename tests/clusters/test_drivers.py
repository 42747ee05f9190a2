"""A broker is opened by its version or series: one at home, or RabbitMQ's own release of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.sut import drivers
from rabbitmq_resilience.sut.drivers import DRIVERS, versions_at_home
from rabbitmq_resilience.sut.processes import version_homes
from rabbitmq_resilience.sut.processes.version_homes import WrongBrokerError
from rabbitmq_resilience.tools import releases
from rabbitmq_resilience.tools.distributions import BrokerHome
from rabbitmq_resilience.tools.progress import Failed
from tests.messages import Messages


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two brokers are at home, none is named, and no server has another."""
    there = [BrokerHome(Path("/homes") / version, Path("/homes/erlang"), version) for version in ("4.0.5", "4.3.6")]
    monkeypatch.delenv("RABBITMQ_HOME", raising=False)
    for module in (drivers, version_homes):
        monkeypatch.setattr(module, "brokers_at_home", lambda: there)

    def found(folder: Path | None = None) -> BrokerHome:
        return there[0] if folder is None else BrokerHome(folder, folder, "4.2.9")

    def none(*_: object) -> None:
        raise Failed("no such release")

    for module in (drivers, version_homes):
        monkeypatch.setattr(module, "find_broker", found)
    monkeypatch.setattr(releases, "provide", none)
    monkeypatch.setattr(releases, "newest", none)


@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize(
    ("wanted", "version"), [("4.3", "4.3.6"), ("4.3.6", "4.3.6"), ("4.0", "4.0.5"), (None, "4.0.5")]
)
def test_a_version_or_a_series_is_taken_from_home(wanted: str | None, version: str) -> None:
    opened = DRIVERS["local"].open(wanted)
    assert opened.broker_version == version
    assert list(opened.homes) == ([] if wanted else ["4.0.5", "4.3.6"])
    assert list(versions_at_home("local")) == ["4.0.5", "4.3.6"]


@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize("wanted", ["4.2", "4.2.9"])
def test_another_one_is_rabbitmqs_own_release(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "newest", lambda series: f"{series}.9")
    monkeypatch.setattr(releases, "provide", lambda version: Path("/releases") / version)
    assert DRIVERS["local"].open(wanted).broker_version == "4.2.9"


@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize("wanted", ["4.2.99", "4.9", "4", "4.30", "newest"])
def test_what_cannot_be_had_is_refused_with_what_can(wanted: str, message: Messages) -> None:
    with message.of(WrongBrokerError):
        DRIVERS["local"].open(wanted)


@pytest.mark.usefixtures("at_home")
def test_where_a_broker_is_named_no_other_is_looked_for(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    monkeypatch.setenv("RABBITMQ_HOME", "/homes/4.0.5")
    assert versions_at_home("local") == ()
    with message.of(WrongBrokerError):
        DRIVERS["local"].open("4.3")
