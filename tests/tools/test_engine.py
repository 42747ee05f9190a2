"""Which container engine set-up finds, what it says where there is none, and how it starts and ends one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from rabbitmq_resilience.extensions.setup import debian, dockerd, setup_command
from rabbitmq_resilience.extensions.setup import engine as provided
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing
from rabbitmq_resilience.tools.progress import Failed
from tests.messages import Messages
from tests.tools.programs import program

#: Writes its pid file and answers, as dockerd does; with an empty pid file it fails.
DOCKERD = """\
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.tools.fake_engine import FakeEngine

told = dict(option.removeprefix("--").split("=", 1) for option in sys.argv[1:])
Path(told["pidfile"]).write_text(str(os.getpid()))
with FakeEngine(Path(told["host"].removeprefix("unix://"))) as fake:
    fake.join()
"""


@pytest.mark.core
@pytest.mark.core
@pytest.mark.usefixtures("fake")
def test_the_engine_that_answers_is_taken(socket_file: Path) -> None:
    assert provided.found() == f"20.10.24 (API 1.41, Linux 6.1) at unix://{socket_file}"


@pytest.mark.core
@pytest.mark.core
@pytest.mark.usefixtures("socket_file")
def test_a_named_engine_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with message.of(Missing) as missing:
        provided.found()
    assert "unix:///nowhere/docker.sock" in str(missing.value)


@pytest.mark.engine
def test_the_engine_of_this_machine_is_found(engine: docker.DockerClient) -> None:
    told = engine.version()
    assert str(provided.found()).startswith(f"{told['Version']} (API {told['ApiVersion']}, Linux ")


@pytest.mark.parametrize("address", ["ssh://host", "unix://", "http://host", "docker.sock", "tcp://host"])
def test_an_address_that_set_up_cannot_use_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    with message.of(Missing):
        provided.found()


def test_an_engine_behind_tls_is_refused(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://localhost:2376")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    with message.of(Missing):
        provided.found()


@pytest.mark.core
@pytest.mark.core
def test_an_engine_that_keeps_silent_is_not_waited_for(
    socket_file: Path, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setattr(provided, "ANSWER_S", 1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(socket_file))
        silent.listen()
        with message.of(Failed, hide={str(socket_file): "SOCKET"}), provided.answering():
            pass


@pytest.mark.core
@pytest.mark.core
@pytest.mark.usefixtures("fake")
def test_what_the_engine_refuses_is_reported_with_its_address(socket_file: Path, message: Messages) -> None:
    with provided.answering(within_s=900) as client:
        assert client.api.timeout == 900
    with message.of(Failed, hide={str(socket_file): "SOCKET"}) as refused, provided.answering() as client:
        client.images.list()
    assert f"unix://{socket_file}" in str(refused.value)


@pytest.mark.core
@pytest.mark.core
@pytest.mark.usefixtures("path", "tools")
def test_without_root_it_says_why_and_what_to_provide(
    socket_file: Path, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "platform", "linux")
    with message.of(Missing, hide={str(socket_file): "SOCKET"}) as missing:
        provided.make()
    for hint in (f"unix://{socket_file}: ", "No such file", "docker.io", "DOCKER_HOST="):
        assert hint in str(missing.value)


@pytest.mark.core
@pytest.mark.core
@pytest.mark.usefixtures("path", "tools", "socket_file")
def test_nothing_is_installed_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(debian, "available", lambda: False)
    with message.of(Missing, hide={r"unix:///\S*/docker\.sock": "unix://SOCKET"}):
        provided.make()


@pytest.fixture
def started(tools: Path) -> Iterator[Path]:
    """The pid file of what the test starts, which is ended after it."""
    file = tools / "engine" / "dockerd.pid"
    yield file
    pid = dockerd.running(file)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="an engine is started on Linux only")


@pytest.mark.core
@pytest.mark.core
@needs_proc
@pytest.mark.usefixtures("socket_file")
def test_an_engine_that_is_installed_is_started_said_aloud_and_ended(
    path: Path, started: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    script = program(path / "dockerd")
    root = str(Path(__file__).resolve().parents[2])
    script.write_text(f"#!{sys.executable}\n{DOCKERD.format(root=root)}")
    assert provided.make().startswith("20.10.24")
    pid = dockerd.running(started)
    assert f"dockerd, pid {pid}," in capsys.readouterr().out
    assert pid is not None
    assert os.getsid(pid) == pid
    assert setup_command.main(["engine-stop"]) == 0
    assert f"pid {pid}, " in capsys.readouterr().out
    assert dockerd.running(started) is None


@pytest.mark.core
@pytest.mark.core
@needs_proc
@pytest.mark.usefixtures("tools", "socket_file")
def test_an_engine_that_does_not_come_up_is_reported_with_its_log(
    path: Path, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program(path / "dockerd", "echo no cgroups are mounted; exit 3")
    with message.of(Missing, hide={r"unix:///\S*/docker\.sock": "unix://SOCKET"}) as missing:
        provided.make()
    assert "status 3" in str(missing.value)
    assert "no cgroups are mounted" in str(missing.value)


@needs_proc
def test_only_a_dockerd_is_ended(tools: Path, capsys: pytest.CaptureFixture[str], message: Messages) -> None:
    file = tools / "engine" / "dockerd.pid"
    file.parent.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        file.write_text(str(other.pid))
        assert setup_command.main(["engine-stop"]) == 0
        assert other.poll() is None
        other.communicate(b"\n")
    message(capsys.readouterr().out)
