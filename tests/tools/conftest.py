"""A PATH and a ``.tools`` of the test's own: nothing of the machine is seen, nothing is downloaded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.setup import (
    broker_packages,
    debian,
    dockerd,
    engine,
    mmdebstrap,
    packaged,
    patchelf,
    setup_tasks,
    toxiproxy_package,
)
from setup import environment
from tests.tools.fake_engine import FakeEngine


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH; nothing is named in the environment."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("RABBITMQ_HOME", "TOXIPROXY_SERVER", "PROMETHEUS", "HAPROXY", "PYTHON", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``.tools`` of the test's own, empty."""
    folder = tmp_path / ".tools"
    for module in (
        setup_tasks,
        broker_packages,
        toxiproxy_package,
        packaged,
        debian,
        environment,
        mmdebstrap,
        dockerd,
        patchelf,
    ):
        monkeypatch.setattr(module, "TOOLS", folder)
    monkeypatch.setattr(toxiproxy_package, "PLACE", folder / "bin" / "toxiproxy-server")
    monkeypatch.setattr(toxiproxy_package, "STAMP", folder / "bin" / "toxiproxy-version")
    monkeypatch.setattr(mmdebstrap, "PLACE", folder / "mmdebstrap")
    monkeypatch.setattr(dockerd, "PLACE", folder / "engine")
    return folder


@pytest.fixture
def socket_file(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the default engine's socket would be: nothing is there. Its name is short, as sockets demand."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        file = Path(folder) / "docker.sock"
        monkeypatch.setattr(engine, "DEFAULT_ADDRESS", f"unix://{file}")
        yield file


@pytest.fixture
def fake(socket_file: Path) -> Iterator[FakeEngine]:
    """An engine that answers at the default address."""
    with FakeEngine(socket_file) as there:
        yield there
