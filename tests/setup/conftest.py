"""A PATH and a ``.tools`` of the test's own: nothing of the machine is seen, nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from setup import broker, debian, environment, prometheus, steps, toxiproxy


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH; nothing is named in the environment."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("RABBITMQ_HOME", "TOXIPROXY_SERVER", "PROMETHEUS", "PYTHON"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``.tools`` of the test's own, empty."""
    folder = tmp_path / ".tools"
    for module in (steps, broker, toxiproxy, prometheus, debian, environment):
        monkeypatch.setattr(module, "TOOLS", folder)
    monkeypatch.setattr(broker, "PLACE", folder / "broker")
    monkeypatch.setattr(prometheus, "PLACE", folder / "prometheus")
    monkeypatch.setattr(toxiproxy, "PLACE", folder / "bin" / "toxiproxy-server")
    monkeypatch.setattr(toxiproxy, "STAMP", folder / "bin" / "toxiproxy-version")
    return folder
