"""What the docker driver says where no engine answers it, or one that has no images, or one that ends in a run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import psutil
import pytest

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.containers.container import Container, ContainerPlace, EngineSignals
from rabbitmq_resilience.sut.containers.container_cluster import DockerCluster
from rabbitmq_resilience.sut.containers.engine_client import connect
from rabbitmq_resilience.sut.containers.engine_errors import EngineGoneError
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


class StartedContainer(Container):
    def __init__(self, client: docker.DockerClient) -> None:
        made: Any = SimpleNamespace(get_container_id=lambda: "c1")
        super().__init__("a1", made, client, client)
        self._started = True


class OneNode(DockerCluster):
    """A cluster of one node that was started; it has nothing but its container."""

    def __init__(self, client: docker.DockerClient) -> None:
        place: Any = ContainerPlace(StartedContainer(client), EngineSignals(), log=Path("a1.log"))
        self._brokers = {"a1": place}
        self._stack = ExitStack()
        self._stack.callback(self._end_processes)


@pytest.mark.core
@pytest.mark.parametrize("socket_stays", [True, False])
def test_an_engine_that_ends_during_a_run_ends_the_run_with_a_sentence(
    socket_stays: bool, path: Path, message: Messages
) -> None:
    with FakeEngine(path):
        client = connect()
        cluster = OneNode(client)
        with pytest.raises(ClusterError, match="no such thing"):
            cluster.process("a1")
        cluster.check()  # it refused, and is there
    if not socket_stays:
        path.unlink()
    with closing(client):
        with message.of(EngineGoneError, hide=FOLDER):
            cluster.process("a1")
        with pytest.raises(EngineGoneError):
            cluster.check()
        cluster.close()
