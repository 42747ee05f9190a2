from pathlib import Path

import pytest

from rabbitmq_resilience.tools.distributions import (
    ToolMissingError,
    find_broker,
    find_haproxy,
    find_prometheus,
    find_toxiproxy,
)
from tests.messages import Messages


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
    """What set-up leaves: the distribution's packages, unpacked."""
    folder = tmp_path / "tools"
    broker(folder / "broker" / "usr" / "lib" / "rabbitmq" / "lib" / "rabbitmq_server-3.10.8")
    erlang(folder / "broker" / "usr" / "lib" / "erlang" / "bin")
    program(folder / "bin" / "toxiproxy-server")
    program(folder / "prometheus" / "usr" / "bin" / "prometheus")
    return folder


def test_unpacked_packages_are_found(tools: Path) -> None:
    found = find_broker(environ={"PATH": ""}, tools=tools)

    assert found.version == "3.10.8"
    assert found.release == (3, 10)
    assert found.erlang_bin == tools / "broker" / "usr" / "lib" / "erlang" / "bin"


def test_the_named_one_comes_first(tools: Path, tmp_path: Path) -> None:
    named, other = broker(tmp_path / "mine", "4.0.5"), broker(tmp_path / "other", "4.1.0")

    assert find_broker(named, environ={"PATH": "", "RABBITMQ_HOME": str(other)}, tools=tools).version == "4.0.5"
    assert find_broker(environ={"PATH": "", "RABBITMQ_HOME": str(other)}, tools=tools).version == "4.1.0"


def test_the_one_on_path_comes_before_tools(tools: Path, tmp_path: Path) -> None:
    home = broker(tmp_path / "brew", "3.12.1")
    erlang_bin = erlang(tmp_path / "otp" / "bin")

    found = find_broker(environ={"PATH": f"{home / 'sbin'}:{erlang_bin}"}, tools=tools)

    assert (found.version, found.erlang_bin) == ("3.12.1", erlang_bin)


def test_a_named_folder_without_broker_is_an_error(tools: Path, tmp_path: Path, message: Messages) -> None:
    with message.of(ToolMissingError):
        find_broker(tmp_path, environ={"PATH": ""}, tools=tools / "none")


def test_no_broker_tells_what_to_do(tmp_path: Path, message: Messages) -> None:
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


def test_no_toxiproxy_tells_what_to_do(tmp_path: Path, message: Messages) -> None:
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


def test_no_haproxy_tells_what_to_do(tmp_path: Path, message: Messages) -> None:
    with message.of(ToolMissingError):
        find_haproxy(environ={"PATH": ""}, tools=tmp_path)


def test_no_prometheus_tells_what_to_do(tmp_path: Path, message: Messages) -> None:
    with message.of(ToolMissingError):
        find_prometheus(environ={"PATH": ""}, tools=tmp_path)
