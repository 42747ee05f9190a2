"""Containers that are signalled and frozen by the engine, and by Pumba where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from topologies.cluster import ClusterError
from topologies.containers import Container, EngineSignals, Signals
from topologies.distributions import ToolMissingError, find_pumba
from topologies.drivers import DEFAULT_VERSION
from topologies.engine import CLUSTER_LABEL, connect, find_broker_image, remove_all_of
from topologies.signals import PumbaSignals, signals
from topologies.waiting import wait_until

#: Ends with 3 when it is asked to.
_SCRIPT = 'trap "exit 3" TERM; while :; do sleep 0.1; done'


def pumba(folder: Path) -> PumbaSignals:
    try:
        return PumbaSignals(find_pumba(), folder, folder / "pumba.log")
    except ToolMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(params=[lambda _: EngineSignals(), pumba], ids=["engine", "pumba"])
def by(request: pytest.FixtureRequest, tmp_path: Path) -> Signals:
    made: Signals = request.param(tmp_path)
    return made


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Container]:
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    try:
        client = connect()
        image = find_broker_image(client, DEFAULT_VERSION).name
    except ToolMissingError as error:
        pytest.skip(str(error))
    fields: dict[str, Any] = {"entrypoint": ["sh", "-c", _SCRIPT], "labels": {CLUSTER_LABEL: str(tmp_path)}}
    made = Container("a1", DockerContainer(image, name=f"signals-{tmp_path.name}", **fields), client)
    made.start()
    yield made
    remove_all_of(tmp_path)


def await_state(container: Container, state: str) -> None:
    wait_until(lambda: container.process() == state, timeout_s=20, what=f"the container to be {state}")


@pytest.mark.broker
@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 3), ("SIGKILL", 137)])
def test_a_signal_arrives(by: Signals, container: Container, name: str, status: int) -> None:
    by.send(container, name)
    await_state(container, "gone")
    assert container.exit_status() == status


@pytest.mark.broker
def test_what_is_frozen_goes_on(by: Signals, container: Container) -> None:
    for _ in range(2):
        by.freeze(container)
        await_state(container, "suspended")
        by.thaw(container)
        await_state(container, "running")


@pytest.mark.broker
def test_what_pumba_does_is_kept_in_its_log(container: Container, tmp_path: Path) -> None:
    by = pumba(tmp_path)
    by.freeze(container)
    by.thaw(container)
    by.send(container, "SIGKILL")
    told = by.log.read_text()
    assert "pausing container" in told
    assert "killing container" in told


@pytest.mark.broker
def test_pumba_that_froze_nothing_is_an_error(container: Container, tmp_path: Path) -> None:
    by = pumba(tmp_path)
    container.signal("SIGKILL")
    await_state(container, "gone")
    with pytest.raises(ClusterError, match="Pumba"):
        by.freeze(container)


def test_without_pumba_it_is_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUMBA", raising=False)
    monkeypatch.setattr("topologies.signals.find_pumba", _missing)
    assert isinstance(signals(tmp_path, tmp_path / "log"), EngineSignals)


def test_a_pumba_that_is_named_and_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUMBA", str(tmp_path / "nowhere"))
    with pytest.raises(ToolMissingError, match="PUMBA names "):
        signals(tmp_path, tmp_path / "log")


def _missing() -> Path:
    raise ToolMissingError("no pumba found")
