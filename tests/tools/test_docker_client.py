"""How an engine is connected to: whoever answers, or does not, no socket is left open."""

from __future__ import annotations

import re
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
from docker.errors import APIError, DockerException
from requests import RequestException

from rabbitmq_resilience.tools.docker_client import connect, reason
from tests.messages import Messages
from tests.tools.fake_engine import FakeEngine

pytestmark = pytest.mark.core

pytestmark = pytest.mark.core

VERSION = b'{"ApiVersion": "1.41"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"

#: What is answered, and what is then said of it.
ANSWERS = {
    "nothing": (b"", "closed connection without response"),
    "no HTTP": (b"\x15\x03\x01 no HTTP\r\n\r\n", "no HTTP"),
    "a refusal": (
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nnone",
        "^refused GET /version: none$",
    ),
    "no JSON": (OK % 4 + b"none", "Expecting value"),
    "no version": (OK % 2 + b"{}", "does not report the version"),
    "half an answer": (OK % (2 * len(VERSION)) + VERSION, "IncompleteRead"),
}


@pytest.fixture
def path() -> Iterator[Path]:
    """Where the engine's socket would be. Its name is short, as sockets demand."""
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        yield Path(folder) / "docker.sock"


@pytest.fixture(autouse=True)
def no_socket_more() -> Iterator[None]:
    """No garbage is collected in a test: what is closed by then was closed by who opened it."""
    before = psutil.Process().num_fds()
    yield
    after = psutil.Process().num_fds()
    assert after <= before


@contextmanager
def listening(listener: socket.socket, answer: bytes) -> Iterator[None]:
    """An engine that answers every request so, and hangs up."""
    with listener:
        listener.listen()
        thread = threading.Thread(target=_answer_all, args=(listener, answer))
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _answer_all(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            if connection.recv(65536):
                connection.sendall(answer)


def silence(address: str | None = None) -> str:
    with pytest.raises((DockerException, RequestException)) as error:
        connect(address)
    return reason(error.value)


def test_where_no_one_listens_no_engine_answers(path: Path) -> None:
    assert silence(f"unix://{path}") == "[Errno 2] No such file or directory"


def test_what_was_left_of_an_engine_is_none(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert silence(f"unix://{path}") == "[Errno 111] Connection refused"


def test_a_port_where_no_one_listens_is_none() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        assert "Connection refused" in silence(f"tcp://127.0.0.1:{nobody.getsockname()[1]}")


@pytest.mark.parametrize(("answer", "said"), ANSWERS.values(), ids=ANSWERS)
def test_who_answers_otherwise_is_none(path: Path, answer: bytes, said: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    with listening(listener, answer), pytest.raises((DockerException, RequestException)) as error:
        connect(f"unix://{path}")
    assert re.search(said, reason(error.value))


def test_no_proxy_is_asked_for_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    with listening(listener, OK % len(VERSION) + VERSION), closing(connect(address)) as client:
        assert client.api.api_version == "1.41"


def test_an_engine_is_spoken_to_in_its_own_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with FakeEngine(path) as fake:
        with closing(connect()) as client:
            assert client.api.api_version == "1.41"
        assert fake.calls == ["GET /version"]


def test_what_the_engine_refuses_is_reported_with_its_words(path: Path, message: Messages) -> None:
    with FakeEngine(path), closing(connect(f"unix://{path}")) as client:
        with pytest.raises(APIError) as error:
            client.containers.get("c1")
        assert "GET /v1.41/containers/c1/json: no such thing: " in reason(error.value)
        message(reason(error.value))
