"""What the docker driver says where no engine answers it, or one that has no images."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rabbitmq_resilience.sut.containers.engine_client import connect
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.tools.distributions import ToolMissingError
from tests.messages import Messages
from tests.tools.fake_engine import FakeEngine

#: The folder of a socket has a name of its own each time.
FOLDER = {r"/[^ ]*/engine-[^/]+": "FOLDER"}


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the engine's socket would be. Its name is short, as sockets demand."""
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        file = Path(folder) / "docker.sock"
        monkeypatch.setenv("DOCKER_HOST", f"unix://{file}")
        yield file


@pytest.mark.core
@pytest.mark.usefixtures("path")
def test_where_no_engine_answers_it_says_why_and_what_to_do(message: Messages) -> None:
    with message.of(ToolMissingError, hide=FOLDER):
        connect()


@pytest.mark.core
@pytest.mark.usefixtures("path")
def test_the_driver_needs_one(message: Messages) -> None:
    with message.of(ToolMissingError, hide=FOLDER):
        DRIVERS["docker"].open(None)


@pytest.mark.core
def test_an_image_that_cannot_be_had_leaves_no_client(path: Path, message: Messages) -> None:
    before = psutil.Process().num_fds()
    with FakeEngine(path), message.of(ToolMissingError, hide=FOLDER):
        DRIVERS["docker"].open(None)
    assert psutil.Process().num_fds() <= before
