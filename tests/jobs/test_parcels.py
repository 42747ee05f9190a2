"""Archives that come from a pod: whole, or not at all, whatever is lost on the way."""

from __future__ import annotations

import base64
import io
import socket
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.jobs import folder_archive
from rabbitmq_resilience.extensions.jobs.folder_archive import Label, ParcelError, fetch, pack, unpack
from tests.jobs.shell import run_in_shell
from tests.messages import Messages

#: Sizes and digests of archives hold the times of their files.
PACKED = {r"\b[0-9a-f]{6,}\b": "DIGEST", r"\d+ bytes": "SIZE bytes"}


@dataclass
class LossyMachine:
    """This machine, which does ``harm`` to what it prints: to the n-th answer."""

    harm: Callable[[int, str], str] = lambda _, text: text
    asked: int = 0
    state: str = ""
    description: str = "a pod"

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:  # noqa: ARG002 - as machines have it
        self.asked += 1
        return self.harm(self.asked, run_in_shell(script, *arguments))

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
        raise NotImplementedError


@dataclass
class Sent:
    """What was packed of the folder ``recorded``, and where it goes."""

    folder: Path
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        run = self.folder / "recorded" / "runs" / "a"
        run.mkdir(parents=True)
        (run / "fault.yaml").write_text("title: A\n", encoding="utf-8")
        (run / "history").write_bytes(bytes(range(256)) * 40)
        (self.folder / "recorded" / "ended.json").write_text("{}", encoding="utf-8")
        self.label = pack(self.folder / "recorded", self.folder / "sent.tar.gz")

    def come(self, machine: LossyMachine, label: Label | None = None) -> Path:
        archive = self.folder / "come.tar.gz"
        fetch(machine, label or self.label, at=str(self.folder / "sent.tar.gz"), to=archive, say=self.said.append)
        return archive

    def contents(self, folder: str) -> dict[str, bytes]:
        root = self.folder / folder
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sent:
    monkeypatch.setattr(folder_archive, "PIECE_BYTES", 100)
    return Sent(tmp_path)


def test_what_was_packed_comes_back_in_pieces(sent: Sent) -> None:
    machine = LossyMachine()
    unpack(sent.come(machine), sent.label, sent.folder / "back")
    assert sent.contents("back") == sent.contents("recorded")
    assert sent.label.files == len(sent.contents("back")) == 3
    assert machine.asked == -(-sent.label.size_bytes // 100) > 2
    assert sent.said == []


def test_an_end_that_is_lost_is_asked_for_again(sent: Sent, message: Messages) -> None:
    machine = LossyMachine(lambda n, text: text[:40] if n == 2 else text)
    unpack(sent.come(machine), sent.label, sent.folder / "back")
    assert sent.contents("back") == sent.contents("recorded")
    (said,) = sent.said
    assert "70 of 100 bytes" in said
    message(said)


def test_a_stream_that_breaks_off_is_asked_for_again(sent: Sent, message: Messages) -> None:
    def harm(n: int, text: str) -> str:
        if n == 1:
            raise MachineError("a pod: the stream ended without a status")
        return text

    assert sent.come(LossyMachine(harm)).stat().st_size == sent.label.size_bytes
    (said,) = sent.said
    assert "a pod: the stream ended without a status" in said
    message(said)


def test_what_never_comes_whole_is_reported_and_nothing_is_left(sent: Sent, message: Messages) -> None:
    with message.of(ParcelError) as refused:
        sent.come(LossyMachine(lambda _, __: ""))
    assert "100 of 100 bytes" in str(refused.value)
    assert not (sent.folder / "come.tar.gz").exists()
    assert len(sent.said) == 3


def changed(text: str) -> str:
    data = bytearray(base64.b64decode(text))
    data[10] ^= 1
    return base64.b64encode(data).decode()


def test_bytes_that_were_changed_are_noticed_and_asked_for_again(sent: Sent, message: Messages) -> None:
    machine = LossyMachine(lambda n, text: changed(text) if n == 2 else text)
    unpack(sent.come(machine), sent.label, sent.folder / "back")
    assert sent.contents("back") == sent.contents("recorded")
    (said,) = sent.said
    message(said, hide=PACKED)


def test_bytes_that_are_changed_each_time_are_not_unpacked(sent: Sent, message: Messages) -> None:
    with message.of(ParcelError, hide=PACKED):
        sent.come(LossyMachine(lambda _, text: changed(text)))
    assert not (sent.folder / "come.tar.gz").exists()


def test_an_archive_with_fewer_files_than_were_packed_is_refused(sent: Sent, message: Messages) -> None:
    archive = sent.come(LossyMachine())
    with message.of(ParcelError):
        unpack(archive, replace(sent.label, files=4), sent.folder / "back")
    assert not (sent.folder / "back").exists()


def test_an_archive_that_breaks_off_is_refused(sent: Sent) -> None:
    archive = sent.folder / "torn.tar.gz"
    archive.write_bytes((sent.folder / "sent.tar.gz").read_bytes()[:-60])
    with pytest.raises(ParcelError):
        unpack(archive, sent.label, sent.folder / "back")
    assert not (sent.folder / "back").exists()


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside"])
def test_what_would_lie_elsewhere_is_refused(tmp_path: Path, name: str, message: Messages) -> None:
    archive = tmp_path / "odd.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    with message.of(ParcelError) as refused:
        unpack(archive, Label(1, 1, ""), tmp_path / "back")
    assert repr(name) in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd.tar.gz"]


def test_a_link_is_no_file(tmp_path: Path, message: Messages) -> None:
    archive = tmp_path / "odd.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with message.of(ParcelError) as refused:
        unpack(archive, Label(1, 1, ""), tmp_path / "back")
    assert "'link'" in str(refused.value)


@pytest.mark.parametrize("text", ["", "Killed", '{"files": 1}'])
def test_what_is_no_label_is_reported(text: str, message: Messages) -> None:
    with message.of(ParcelError):
        Label.read(text)
