"""Where set-up takes programs of the distribution from, and what it says where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.setup import debian, haproxy
from rabbitmq_resilience.extensions.setup.haproxy import HAPROXY
from rabbitmq_resilience.extensions.setup.packaged import Packaged
from rabbitmq_resilience.extensions.setup.prometheus_package import PROMETHEUS
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing
from rabbitmq_resilience.tools.progress import Failed
from tests.messages import Messages
from tests.tools.programs import program

#: Each with the path of the program in its package.
UNPACKED = {PROMETHEUS: PROMETHEUS.program, HAPROXY: haproxy.UNPACKED}

each = pytest.mark.parametrize("packaged", UNPACKED, ids=lambda packaged: packaged.package)


def unpacks(path: str, script: str) -> Callable[..., None]:
    """An ``unpack`` that leaves a program which is that script, and a folder of libraries."""

    def unpack(*_: object, into: Path, **__: object) -> None:
        program(into / path, script)
        (into / "usr" / "lib" / "x86_64-linux-gnu").mkdir(parents=True)

    return unpack


@pytest.fixture(autouse=True)
def distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "available", lambda: True)


@pytest.fixture
def shell(path: Path) -> None:
    """What HAProxy's script asks where it lies."""
    for name in ("dirname", "readlink"):
        (path / name).symlink_to(str(shutil.which(name, path=os.defpath)))


@each
def test_what_is_on_path_is_taken_first(packaged: Packaged, tools: Path, path: Path) -> None:
    there = program(path / packaged.package)
    program(tools / packaged.package / packaged.program)
    assert packaged.found() == str(there)


@each
@pytest.mark.usefixtures("path", "tools")
def test_a_named_program_that_does_not_run_is_refused(
    packaged: Packaged, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setenv(packaged.variable, "/nowhere")
    with message.of(Missing):
        packaged.found()


@pytest.mark.core
@each
@pytest.mark.usefixtures("shell")
def test_the_package_is_unpacked_within_the_checkout_once(
    packaged: Packaged, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert packaged.found() is None
    monkeypatch.setattr(debian, "unpack", unpacks(UNPACKED[packaged], "echo version"))
    assert packaged.make() == packaged.found() == str(tools / packaged.package / packaged.program)
    assert [file.name for file in tools.iterdir()] == [packaged.package]


@pytest.mark.core
@each
@pytest.mark.usefixtures("shell")
def test_a_program_that_does_not_start_is_not_kept(
    packaged: Packaged, tools: Path, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setattr(debian, "unpack", unpacks(UNPACKED[packaged], "echo no such library; exit 1"))
    with message.of(Missing) as missing:
        packaged.make()
    name = packaged.package
    for hint in ("no such library", f"{name.upper()}: not set", f"brew install {name}", packaged.needed_for):
        assert hint in str(missing.value)
    assert list(tools.iterdir()) == []


@each
@pytest.mark.usefixtures("path", "tools")
def test_a_package_that_cannot_be_had_is_reported_with_its_reason(
    packaged: Packaged, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    def unpack(package: str, **_: object) -> None:
        raise Failed(f"the package lists hold no {package}")

    monkeypatch.setattr(debian, "unpack", unpack)
    with message.of(Missing):
        packaged.make()


@pytest.mark.core
@pytest.mark.usefixtures("shell")
def test_haproxy_finds_its_libraries_wherever_the_folder_lies(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "unpack", unpacks(haproxy.UNPACKED, 'echo "$LD_LIBRARY_PATH $*"'))
    HAPROXY.make()
    moved = tools.parent / "moved"
    (tools / "haproxy").rename(moved)
    told = subprocess.run([moved / haproxy.PROGRAM, "-v"], capture_output=True, text=True, check=True).stdout
    assert told.split() == [str(moved / "usr/lib/x86_64-linux-gnu"), "-v"]
