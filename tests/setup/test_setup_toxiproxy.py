"""Where set-up takes Toxiproxy from, in which order, and what it refuses."""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from pathlib import Path

import pytest

from setup import toxiproxy
from setup.progress import Failed
from setup.steps import Missing
from tests.setup.programs import program


def test_toxiproxy_on_path_is_taken_first(tools: Path, path: Path) -> None:
    server = program(path / "toxiproxy-server")
    program(tools / "bin" / "toxiproxy-server")
    assert toxiproxy.found() == str(server)


@pytest.mark.usefixtures("path")
def test_our_own_toxiproxy_is_kept_while_its_version_is_the_pinned_one(tools: Path) -> None:
    server = program(tools / "bin" / "toxiproxy-server")
    assert toxiproxy.found() is None
    toxiproxy.STAMP.write_text(toxiproxy.VERSION)
    assert toxiproxy.found() == str(server)
    toxiproxy.STAMP.write_text("2.1.0")
    assert toxiproxy.found() is None


@pytest.mark.usefixtures("path", "tools")
def test_a_named_toxiproxy_that_does_not_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOXIPROXY_SERVER", "/nowhere")
    with pytest.raises(Missing, match="TOXIPROXY_SERVER names /nowhere"):
        toxiproxy.found()


def test_go_builds_toxiproxy_within_the_checkout(tools: Path, path: Path) -> None:
    program(path / "go", '/bin/mkdir -p "$GOBIN" "$GOPATH" && echo "$@" > "$GOBIN/server"')
    assert toxiproxy.make() == str(tools / "bin" / "toxiproxy-server")
    assert f"cmd/server@v{toxiproxy.VERSION}" in toxiproxy.PLACE.read_text()
    assert sorted(file.name for file in tools.rglob("*")) == ["bin", "toxiproxy-server", "toxiproxy-version"]


@pytest.mark.usefixtures("tools")
def test_without_go_and_release_both_reasons_are_given(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(path / "go", "echo 'no route to the modules'; exit 1")
    monkeypatch.setattr(toxiproxy, "release_platform", lambda: "plan9_mips")
    with pytest.raises(Missing) as missing:
        toxiproxy.make()
    for hint in ("no route to the modules", "no checksum is known for plan9_mips", "brew install toxiproxy"):
        assert hint in str(missing.value)


@pytest.mark.parametrize(
    ("system", "machine", "name"),
    [
        ("Linux", "x86_64", "linux_amd64"),
        ("Linux", "aarch64", "linux_arm64"),
        ("Darwin", "arm64", "darwin_arm64"),
        ("Darwin", "x86_64", "darwin_amd64"),
    ],
)
def test_releases_are_pinned_for_the_usual_machines(
    system: str, machine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert toxiproxy.release_platform() == name
    assert re.fullmatch("[0-9a-f]{64}", toxiproxy.RELEASE_SHA256[name])


def test_a_release_is_used_only_with_the_pinned_checksum(tools: Path, tmp_path: Path) -> None:
    archive = tmp_path / "release.tar.gz"
    server = program(tmp_path / "toxiproxy-server")
    with tarfile.open(archive, "w:gz") as content:
        content.add(server, arcname="toxiproxy-server")
    toxiproxy.PLACE.parent.mkdir(parents=True)
    with pytest.raises(Failed, match="refused, its SHA-256 is"):
        toxiproxy.extract(archive, sha256="0" * 64)
    assert not toxiproxy.PLACE.exists()
    toxiproxy.extract(archive, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())
    assert os.access(tools / "bin" / "toxiproxy-server", os.X_OK)
