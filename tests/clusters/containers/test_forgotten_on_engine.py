"""What stays in an engine when nobody is left who would remove it, as after a reboot of the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import NotFound

from rabbitmq_resilience.sut.containers.engine_client import CLUSTER_LABEL, BrokerImage, remove_forgotten

pytestmark = pytest.mark.engine

Made = Callable[..., Any]


@pytest.fixture
def made(engine: docker.DockerClient, engine_image: BrokerImage) -> Iterator[Made]:
    """Makes a container of a cluster in a folder, and starts it where it is to run."""
    with ExitStack() as stack:

        def make(folder: Path, *, runs: bool = False) -> Any:
            labels = {CLUSTER_LABEL: str(folder)}
            container = engine.containers.create(engine_image.name, ["sleep", "60"], entrypoint=[], labels=labels)
            stack.callback(_remove, container)
            if runs:
                container.start()
            return container

        yield make


def _remove(container: Any) -> None:
    with suppress(NotFound):
        container.remove(force=True)


def _is_there(container: Any) -> bool:
    with suppress(NotFound):
        container.reload()
        return True
    return False


def test_what_an_earlier_cluster_had_in_the_claimed_folder_goes(
    tmp_path: Path, engine: docker.DockerClient, made: Made
) -> None:
    earlier = made(tmp_path, runs=True)

    remove_forgotten(tmp_path, engine)

    assert not _is_there(earlier)


def test_what_stands_still_and_has_no_folder_goes(tmp_path: Path, engine: docker.DockerClient, made: Made) -> None:
    forgotten = made(tmp_path / "gone")

    remove_forgotten(tmp_path, engine)

    assert not _is_there(forgotten)


def test_a_cluster_of_others_of_which_anything_runs_stays(
    tmp_path: Path, engine: docker.DockerClient, made: Made
) -> None:
    """Its folder may be where we cannot look, and its node may be about to be started again."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()  # until one of them runs: other tests remove what is forgotten at the same time
    killed, runs = made(elsewhere), made(elsewhere, runs=True)
    elsewhere.rmdir()

    remove_forgotten(tmp_path, engine)

    assert _is_there(killed)
    assert _is_there(runs)


def test_a_cluster_whose_folder_is_there_stays(tmp_path: Path, engine: docker.DockerClient, made: Made) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    stopped = made(theirs)

    remove_forgotten(tmp_path, engine)

    assert _is_there(stopped)
