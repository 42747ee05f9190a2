"""Where set-up takes Prometheus from, and what it says where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from setup import debian, prometheus
from setup.progress import Failed
from setup.steps import Missing
from tests.setup.programs import program


def unpacks(script: str) -> Callable[..., None]:
    """An ``unpack`` that leaves a server which is that script."""

    def unpack(*_: object, into: Path, **__: object) -> None:
        program(into / prometheus.PROGRAM, script)

    return unpack


@pytest.fixture(autouse=True)
def distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "available", lambda: True)


def test_prometheus_on_path_is_taken_first(tools: Path, path: Path) -> None:
    server = program(path / "prometheus")
    program(tools / "prometheus" / prometheus.PROGRAM)
    assert prometheus.found() == str(server)


@pytest.mark.usefixtures("path", "tools")
def test_a_named_prometheus_that_does_not_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS", "/nowhere")
    with pytest.raises(Missing, match="PROMETHEUS names /nowhere"):
        prometheus.found()


@pytest.mark.usefixtures("path")
def test_the_package_is_unpacked_within_the_checkout_once(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prometheus.found() is None
    monkeypatch.setattr(debian, "unpack", unpacks("echo version"))
    assert prometheus.make() == prometheus.found() == str(tools / "prometheus" / prometheus.PROGRAM)
    assert [file.name for file in tools.iterdir()] == ["prometheus"]


@pytest.mark.usefixtures("path")
def test_a_server_that_does_not_start_is_not_kept(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "unpack", unpacks("echo no such library; exit 1"))
    with pytest.raises(Missing) as missing:
        prometheus.make()
    for hint in ("no such library", "PROMETHEUS: not set", "brew install prometheus"):
        assert hint in str(missing.value)
    assert list(tools.iterdir()) == []


@pytest.mark.usefixtures("path", "tools")
def test_a_package_that_cannot_be_had_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpack(package: str, **_: object) -> None:
        raise Failed(f"the package lists hold no {package}")

    monkeypatch.setattr(debian, "unpack", unpack)
    with pytest.raises(Missing, match="the package lists hold no prometheus"):
        prometheus.make()
