from pathlib import Path

import pytest

from rabbitmq_resilience.tools.distributions import (
    ToolMissingError,
    brokers_at_home,
    find_broker,
    find_haproxy,
    find_prometheus,
    find_toxiproxy,
)
from rabbitmq_resilience.tools.homes import BOOKWORM, TRIXIE
from tests.messages import Messages
from tests.tools.programs import unpacked


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def broker(home: Path, version: str = "3.10.8") -> Path:
    program(home / "sbin" / "rabbitmq-server")
    (home / "plugins" / f"rabbit-{version}").mkdir(parents=True)
    return home


def erlang(folder: Path) -> Path:
    program(folder / "erlc")
    program(folder / "erl")
    return folder


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """What set-up leaves: two homes, Toxiproxy, Prometheus."""
    folder = tmp_path / "tools"
    unpacked(folder, "3.10.8", BOOKWORM)
    unpacked(folder, "4.0.5", TRIXIE)
    program(folder / "bin" / "toxiproxy-server")
    program(folder / "prometheus" / "usr" / "bin" / "prometheus")
    return folder


def test_homes_are_found_in_the_order_of_their_table(tools: Path) -> None:
    first, second = brokers_at_home(environ={"PATH": ""}, tools=tools)

    assert (first.version, first.release, second.version) == ("4.0.5", (4, 0), "3.10.8")
    assert first.erlang_bin == TRIXIE.place(tools) / "usr" / "lib" / "erlang" / "bin"
    assert find_broker(environ={"PATH": ""}, tools=tools) == first
    assert find_broker(environ={"PATH": "", "ERLANG_HOME": "/of/others"}, tools=tools) == first


def test_the_named_one_comes_first(tools: Path, tmp_path: Path) -> None:
    named, other = broker(tmp_path / "mine", "4.0.6"), broker(tmp_path / "other", "4.1.0")
    path = str(erlang(tmp_path / "otp" / "bin"))

    assert find_broker(named, environ={"PATH": path, "RABBITMQ_HOME": str(other)}, tools=tools).version == "4.0.6"
    assert find_broker(environ={"PATH": path, "RABBITMQ_HOME": str(other)}, tools=tools).version == "4.1.0"


def test_the_one_on_path_is_not_taken_but_named(tools: Path, tmp_path: Path) -> None:
    home = broker(tmp_path / "installed", "3.12.1")
    path = f"{home / 'sbin'}:{erlang(tmp_path / 'otp' / 'bin')}"

    assert find_broker(environ={"PATH": path}, tools=tools).version == "4.0.5"
    with pytest.raises(ToolMissingError, match=str(home)):
        find_broker(environ={"PATH": path}, tools=tmp_path / "none")


def with_otp(place: Path, version: str) -> Path:
    """Let the Erlang of a home, or one on PATH, say its version; return the folder of its programs."""
    root = place / "usr" / "lib" / "erlang"
    erlang(root / "bin")
    said = root / "releases" / version.partition(".")[0] / "OTP_VERSION"
    said.parent.mkdir(parents=True)
    said.write_text(f"{version}\n")
    return root / "bin"


@pytest.mark.parametrize(
    ("version", "otp"),
    [("4.2.2", "27.3.4.1"), ("4.3.5", "27.3.4.1"), ("3.12.14", "25.2.3"), ("4.3.7", "27.3.4.1"), ("5.0.0", "27.3.4.1")],
)
def test_a_broker_without_erlang_runs_on_one_at_home_that_is_supported_with_it(
    version: str, otp: str, tools: Path, tmp_path: Path
) -> None:
    bins = {otp: with_otp(home.place(tools), otp) for home, otp in ((TRIXIE, "27.3.4.1"), (BOOKWORM, "25.2.3"))}
    found = find_broker(broker(tmp_path / "own", version), environ={"PATH": ""}, tools=tools)
    assert found.erlang_bin == bins[otp]


def test_erlang_on_path_is_taken_where_it_is_supported_or_nothing_else_is(tools: Path, tmp_path: Path) -> None:
    at_home, on_path = with_otp(TRIXIE.place(tools), "27.3.4.1"), with_otp(tmp_path / "system", "25.2.3")
    with_otp(BOOKWORM.place(tools), "25.2.3")
    environ = {"PATH": str(on_path)}

    def erlang_of(version: str) -> Path:
        return find_broker(broker(tmp_path / version, version), environ=environ, tools=tools).erlang_bin

    assert (erlang_of("3.11.28"), erlang_of("4.2.2"), erlang_of("3.13.7")) == (on_path, at_home, on_path)
    environ["ERLANG_HOME"] = str(on_path.parent)
    assert erlang_of("4.2.3") == on_path


def test_what_erlang_is_missing_is_said_with_what_to_do(tools: Path, tmp_path: Path, message: Messages) -> None:
    with_otp(TRIXIE.place(tools), "27.3.4.1")
    with_otp(BOOKWORM.place(tools), "25.2.3")
    with message.of(ToolMissingError) as missing:
        find_broker(broker(tmp_path / "own", "3.13.7"), environ={"PATH": ""}, tools=tools)
    assert "--driver containers --broker 3.13.7" in str(missing.value)
    with pytest.raises(ToolMissingError, match="ERLANG_HOME names /nowhere"):
        find_broker(tmp_path / "own", environ={"PATH": "", "ERLANG_HOME": "/nowhere"}, tools=tools)


def test_a_named_folder_without_broker_is_an_error(tools: Path, tmp_path: Path, message: Messages) -> None:
    with message.of(ToolMissingError):
        find_broker(tmp_path, environ={"PATH": ""}, tools=tools / "none")


def test_no_broker_says_what_to_do(tmp_path: Path, message: Messages) -> None:
    with message.of(ToolMissingError) as missing:
        find_broker(environ={"PATH": ""}, tools=tmp_path)
    for hint in ("make setup", "--rabbitmq-home"):
        assert hint in str(missing.value)


def test_toxiproxy_in_its_order(tools: Path, tmp_path: Path) -> None:
    on_path = program(tmp_path / "bin" / "toxiproxy-server")
    named = program(tmp_path / "own" / "server")

    assert find_toxiproxy(environ={"PATH": ""}, tools=tools) == tools / "bin" / "toxiproxy-server"
    assert find_toxiproxy(environ={"PATH": str(on_path.parent)}, tools=tools) == on_path
    assert find_toxiproxy(environ={"PATH": "", "TOXIPROXY_SERVER": str(named)}, tools=tools) == named


def test_no_toxiproxy_says_what_to_do(tmp_path: Path, message: Messages) -> None:
    with message.of(ToolMissingError):
        find_toxiproxy(environ={"PATH": ""}, tools=tmp_path)
    with message.of(ToolMissingError):
        find_toxiproxy(environ={"TOXIPROXY_SERVER": str(tmp_path / "none")}, tools=tmp_path)


def test_prometheus_in_its_order(tools: Path, tmp_path: Path) -> None:
    on_path = program(tmp_path / "bin" / "prometheus")
    named = program(tmp_path / "own" / "server")

    assert find_prometheus(environ={"PATH": ""}, tools=tools) == tools / "prometheus" / "usr" / "bin" / "prometheus"
    assert find_prometheus(environ={"PATH": str(on_path.parent)}, tools=tools) == on_path
    assert find_prometheus(environ={"PATH": "", "PROMETHEUS": str(named)}, tools=tools) == named


def test_haproxy_in_its_order(tmp_path: Path) -> None:
    unpacked = program(tmp_path / "haproxy" / "haproxy")
    on_path = program(tmp_path / "bin" / "haproxy")
    named = program(tmp_path / "own" / "balancer")

    assert find_haproxy(environ={"PATH": ""}, tools=tmp_path) == unpacked
    assert find_haproxy(environ={"PATH": str(on_path.parent)}, tools=tmp_path) == on_path
    assert find_haproxy(environ={"PATH": "", "HAPROXY": str(named)}, tools=tmp_path) == named


def test_no_haproxy_says_what_to_do(tmp_path: Path, message: Messages) -> None:
    with message.of(ToolMissingError):
        find_haproxy(environ={"PATH": ""}, tools=tmp_path)


def test_no_prometheus_says_what_to_do(tmp_path: Path, message: Messages) -> None:
    with message.of(ToolMissingError):
        find_prometheus(environ={"PATH": ""}, tools=tmp_path)
