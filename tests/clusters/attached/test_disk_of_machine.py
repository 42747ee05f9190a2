"""The disk of a broker is filled and given back: on a file system of this machine, by the very scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.commanded import OurMachine
from rabbitmq_resilience.extensions.attached.disk_filling import RemoteDisk
from rabbitmq_resilience.extensions.attached.foreign_broker import RemoteBroker
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.tools.waiting import wait_until
from tests.messages import Messages

SIZE_BYTES = 32 * 2**20
#: Of nobody on this machine.
USER = 54321


@dataclass
class Place:
    """``folder`` is seen by everybody, ``data`` belongs to a user alone."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "mounted" / "data"

    def disk(self, path: Path) -> RemoteDisk:
        start = f"echo started >> {self.folder}/started"
        broker = SimpleNamespace(start_command=lambda: start, killed_where=lambda _expression: "")
        return RemoteDisk(OurMachine(f"{self.folder}/state"), cast(RemoteBroker, broker), str(path), "h1")

    def left_on_machine(self) -> str:
        commands = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
        return "\n".join(command for command in commands if str(self.folder) in command)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(watchdog, "MARGIN_S", 0.0)
    folder = Path(mkdtemp(prefix="disk-of-machine-"))
    folder.chmod(0o755)
    mounted = folder / "mounted"
    mounted.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(mounted)]
    if os.getuid() != 0 or subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        shutil.rmtree(folder)
        pytest.skip("only root may mount a file system")
    try:
        data = mounted / "data"
        data.mkdir()
        os.chown(data, USER, USER)
        yield Place(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)
        shutil.rmtree(folder)


@pytest.mark.core
def test_it_is_full_until_it_is_given_back(place: Place) -> None:
    disk = place.disk(place.data)
    assert disk.lacking(stored_in=str(place.data)) == []
    assert disk.takes()
    (place.data / "of-the-broker").write_bytes(bytes(2**20))
    disk.fill(for_s=60)
    disk.fill(for_s=60)  # a container engine may run a script twice
    wait_until(lambda: not disk.takes(), timeout_s=30, what="the disk to be full")
    assert disk.room().free_bytes == 0

    (place.data / "of-the-broker").unlink()  # what is freed is taken, too
    wait_until(lambda: disk.room().free_bytes == 0, timeout_s=30, what="the disk to be full again")
    assert list(place.data.iterdir()) == []

    disk.empty()
    assert disk.takes()
    assert disk.room().free_bytes == SIZE_BYTES
    assert (place.folder / "started").read_text() == "started\n", "a broker that has died of it is started"
    assert place.left_on_machine() == ""


@pytest.mark.attached
def test_it_is_given_back_by_itself(place: Place) -> None:
    disk = place.disk(place.data)
    disk.fill(for_s=3)
    wait_until(lambda: not disk.takes(), timeout_s=30, what="the disk to be full")
    wait_until(disk.takes, timeout_s=20, what="the disk to have room")
    assert disk.room().free_bytes == SIZE_BYTES
    wait_until(lambda: place.left_on_machine() == "", timeout_s=30, what="no traces")


@pytest.mark.attached
def test_also_where_no_one_watches(place: Place) -> None:
    """The watchdog was killed, and what it knew is gone."""
    disk = place.disk(place.data)
    disk.fill(for_s=4)
    wait_until(lambda: not disk.takes(), timeout_s=30, what="the disk to be full")
    folder = place.folder / "state" / "h1-disk"
    os.kill(int((folder / "pid").read_text()), 9)
    shutil.rmtree(folder)
    wait_until(disk.takes, timeout_s=20, what="the disk to have room")


@pytest.mark.core
def test_where_it_cannot_be_filled(place: Place, message: Messages) -> None:
    folder = {str(place.folder): "FOLDER"}
    (nowhere,) = place.disk(place.folder / "nowhere").lacking(stored_in="")
    assert nowhere.endswith(f" {place.folder}/nowhere")
    message(nowhere, hide=folder)
    (other,) = place.disk(place.data).lacking(stored_in=str(place.folder))
    assert str(place.data) in other
    message(other, hide=folder)
    with pytest.raises(MachineError):
        place.disk(place.folder / "nowhere").fill(for_s=1)
