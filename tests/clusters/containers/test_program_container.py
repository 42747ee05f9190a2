"""A program of an image, as an engine answers of it: its output, its status, its end, and errors of the engine."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, DockerException, NotFound
from requests import Response

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.containers.program_container import UNKNOWN_STATUS, ProgramContainer


def ended() -> APIError:
    """Return the answer about a container that does not run."""
    response = Response()
    response.status_code = 409
    return APIError("is not running", response=response)


class Engine:
    """A client of an engine whose only program prints two lines, and ends by the first signal."""

    def __init__(self, *, started: Exception | None = None, followed: Exception | None = None) -> None:
        self.attrs = {"State": {"Pid": 7}}
        self.containers = self
        self.asked: dict[str, Any] = {}
        self.said: list[str] = []
        self.refusal: Exception | None = None
        self._started, self._followed = started, followed
        self._signalled = threading.Event()

    def run(self, image: str, command: list[str] | None, **fields: Any) -> Engine:
        if self._started is not None:
            raise self._started
        self.asked = {"image": image, "command": command, **fields}
        return self

    def reload(self) -> None: ...

    def logs(self, *, stream: bool, follow: bool) -> Iterator[bytes]:
        assert stream
        assert follow
        yield b"first\n"
        self._signalled.wait(60)
        if self._followed is not None:
            raise self._followed
        yield b"last\n"

    def wait(self) -> dict[str, int]:
        return {"StatusCode": 3}

    def remove(self, *, force: bool, v: bool) -> None:
        self.said.append(f"removed {force} {v}")

    def kill(self, *, signal: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        if self._signalled.is_set():
            raise ended()
        self.said.append(signal)
        self._signalled.set()


def started(engine: Engine, folder: Path, *, command: list[str] | None = None) -> ProgramContainer:
    shown: dict[str, Any] = {"folder": folder, "readable": [folder / "ca"], "writable": [folder / "lines"]}
    given: dict[str, Any] = {**shown, "labels": {"of": "me"}, "log": folder / "log"}
    return ProgramContainer(engine, "shop:1", command or [], {"A": "1"}, **given)  # type: ignore[arg-type]


def test_a_program_is_shown_what_it_needs_and_writes_only_where_it_may(tmp_path: Path) -> None:
    engine = Engine()
    program = started(engine, tmp_path, command=["serve"])
    program.kill_all()
    assert program.wait(60) == 3
    shown = {tmp_path: "ro", tmp_path / "ca": "ro", tmp_path / "lines": "rw"}
    assert engine.asked == {
        "image": "shop:1",
        "command": ["serve"],
        "detach": True,
        "environment": {"A": "1"},
        "labels": {"of": "me"},
        "network_mode": "host",
        "volumes": {str(path): {"bind": str(path), "mode": mode} for path, mode in shown.items()},
        "working_dir": str(tmp_path),
    }


def test_an_image_without_a_command_runs_its_own(tmp_path: Path) -> None:
    engine = Engine()
    started(engine, tmp_path).kill_all()
    assert engine.asked["command"] is None


def test_a_program_that_ends_has_written_all_and_is_removed(tmp_path: Path) -> None:
    engine = Engine()
    program = started(engine, tmp_path)
    assert (program.pid, program.poll()) == (7, None)
    program.send_signal(signal.SIGTERM)
    assert program.wait(60) == program.poll() == 3
    assert (tmp_path / "log").read_bytes() == b"first\nlast\n"
    assert engine.said == ["SIGTERM", "removed True True"]
    program.kill_all()  # it has ended, which is no error


@pytest.mark.parametrize(
    ("lost", "written"),
    [
        (NotFound("gone"), b"first\n"),
        (DockerException("silent"), b"first\nthe engine does not follow it any longer: silent\n"),
    ],
)
def test_a_program_that_an_engine_lost_counts_as_ended(lost: Exception, written: bytes, tmp_path: Path) -> None:
    program = started(Engine(followed=lost), tmp_path)
    program.kill_all()
    assert program.wait(60) == UNKNOWN_STATUS
    assert (tmp_path / "log").read_bytes() == written


def test_what_an_engine_refuses_is_said(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="does not run shop:1"):
        started(Engine(started=DockerException("no such image")), tmp_path)
    engine = Engine()
    program = started(engine, tmp_path)
    engine.refusal = DockerException("busy")
    with pytest.raises(ClusterError, match="no signal to shop:1"):
        program.kill_all()
    engine.refusal = None
    program.kill_all()
    assert program.wait(60) == 3
