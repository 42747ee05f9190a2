"""Containers that are signalled and frozen by the engine, and by Pumba where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.containers.container import (
    LISTED_WITHIN_S,
    Container,
    ContainerPlace,
    EngineSignals,
    Signals,
)
from rabbitmq_resilience.sut.containers.engine_client import CLUSTER_LABEL, BrokerImage, connected, remove_all_of
from rabbitmq_resilience.sut.containers.signals import PumbaSignals, signals
from rabbitmq_resilience.tools.distributions import ToolMissingError, find_pumba
from rabbitmq_resilience.tools.waiting import wait_until
from tests.needs import skipped_without

#: Ends with 3 when it is asked to. Until it listens, the first process of a container misses what it is asked.
_SCRIPT = 'trap "exit 3" TERM; echo listens; while :; do sleep 0.1; done'
#: Sits in the kernel most of the time, until the disk has taken all.
_WRITING = "echo listens; while :; do dd if=/dev/zero of=/tmp/written bs=1M count=200 conv=fsync; done"


def pumba(folder: Path) -> PumbaSignals:
    with skipped_without():
        return PumbaSignals(find_pumba(), folder, folder / "pumba.log")


@pytest.fixture(params=[lambda _: EngineSignals(), pumba], ids=["engine", "pumba"])
def by(request: pytest.FixtureRequest, tmp_path: Path) -> Signals:
    made: Signals = request.param(tmp_path)
    return made


@pytest.fixture
def container(
    request: pytest.FixtureRequest,
    engine: docker.DockerClient,
    engine_image: BrokerImage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Container]:
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    script = getattr(request, "param", _SCRIPT)
    fields: dict[str, Any] = {"entrypoint": ["sh", "-c", script], "labels": {CLUSTER_LABEL: str(tmp_path)}}
    its_own = DockerContainer(engine_image.name, name=f"signals-{tmp_path.name}", **fields)
    with closing(its_own.get_docker_client().client), connected(answer_within_s=LISTED_WITHIN_S) as looking:
        made = Container("a1", its_own, engine, looking)
        made.start()
        listens = its_own.get_wrapped_container().logs
        wait_until(lambda: b"listens" in listens(), timeout_s=60, what="the script to listen")
        yield made
    remove_all_of(tmp_path)


def await_state(container: Container, state: str) -> None:
    wait_until(lambda: container.process() == state, timeout_s=60, what=f"the container to be {state}")


@pytest.mark.engine
@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 3), ("SIGKILL", 137)])
def test_a_signal_arrives(by: Signals, container: Container, name: str, status: int) -> None:
    by.send(container, name)
    await_state(container, "gone")
    assert container.exit_status() == status


@pytest.mark.engine
def test_what_is_frozen_goes_on(by: Signals, container: Container) -> None:
    for _ in range(2):
        by.freeze(container)
        await_state(container, "suspended")
        by.thaw(container)
        await_state(container, "running")


@pytest.mark.engine
@pytest.mark.parametrize("container", [_WRITING], indirect=True, ids=["writing"])
def test_what_writes_to_a_busy_disk_is_frozen_too(by: Signals, container: Container, tmp_path: Path) -> None:
    place = ContainerPlace(container, by, log=tmp_path / "log")
    for _ in range(4):
        place.pause()
        await_state(container, "suspended")
        place.resume()
        await_state(container, "running")


@pytest.mark.engine
def test_what_pumba_does_is_kept_in_its_log(container: Container, tmp_path: Path) -> None:
    by = pumba(tmp_path)
    by.freeze(container)
    by.thaw(container)
    by.send(container, "SIGKILL")
    told = by.log.read_text()
    assert "pausing container" in told
    assert "killing container" in told


@pytest.mark.engine
def test_pumba_that_froze_nothing_is_an_error(container: Container, tmp_path: Path) -> None:
    by = pumba(tmp_path)
    container.signal("SIGKILL")
    await_state(container, "gone")
    with pytest.raises(ClusterError, match="Pumba"):
        by.freeze(container)


def test_without_pumba_it_is_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUMBA", raising=False)
    monkeypatch.setattr("rabbitmq_resilience.sut.containers.signals.find_pumba", _missing)
    assert isinstance(signals(tmp_path, tmp_path / "log"), EngineSignals)


def test_a_pumba_that_is_named_and_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUMBA", str(tmp_path / "nowhere"))
    with pytest.raises(ToolMissingError, match="PUMBA names "):
        signals(tmp_path, tmp_path / "log")


def _missing() -> Path:
    raise ToolMissingError("no pumba found")
