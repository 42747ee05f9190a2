"""Commands in a real container, several at once: nothing that they print may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.containers import execution
from rabbitmq_resilience.sut.containers.engine_client import CLUSTER_LABEL, BrokerImage, connected, remove_all_of
from rabbitmq_resilience.sut.containers.execution import execute

pytestmark = pytest.mark.engine

AT_ONCE = 4
TIMES = 60


@pytest.fixture
def container(engine: docker.DockerClient, engine_image: BrokerImage, tmp_path: Path) -> Iterator[Any]:
    fields: dict[str, Any] = {"network_mode": "none", "labels": {CLUSTER_LABEL: str(tmp_path)}}
    yield engine.containers.run(engine_image.name, ["-f", "/dev/null"], entrypoint=["tail"], detach=True, **fields)
    remove_all_of(tmp_path)


def test_all_that_is_printed_comes_with_the_status(container: Any) -> None:
    """The engine itself loses some of it, when it is as busy as here."""
    command = ["sh", "-c", 'printf out; printf "$WORD" >&2; pwd; exit 3']
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(
            pool.map(
                lambda _: execute(container.id, command, node="a1", environ={"WORD": "err"}, folder=Path("/usr")),
                range(TIMES),
            )
        )
    assert {(d.returncode, d.stdout, d.stderr) for d in done} == {(3, "out/usr\n", "err")}


def test_arguments_arrive_as_they_are(container: Any) -> None:
    words = ["a b", "$HOME", "'", '"', "", "*"]
    assert execute(container.id, ["printf", "%s;", *words], node="a1").stdout == "a b;$HOME;';\";;*;"


def test_a_command_that_is_not_there_says_so(container: Any) -> None:
    done = execute(container.id, ["no-such-command"], node="a1")
    assert done.returncode == 127
    assert "no-such-command" in done.stderr


class Losing:
    """The API of an engine, which loses a part of what commands print."""

    def __init__(self, api: Any, kept: slice) -> None:
        self.exec_create, self.exec_inspect = api.exec_create, api.exec_inspect
        self._start, self._kept = api.exec_start, kept

    def exec_start(self, execution_id: str, *, demux: bool) -> tuple[bytes, ...]:
        return tuple((stream or b"")[self._kept] for stream in self._start(execution_id, demux=demux))


@pytest.mark.parametrize("kept", [slice(1, None), slice(None, -1)], ids=["beginning", "end"])
def test_what_is_lost_every_time_is_an_error(container: Any, kept: slice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning of what was printed, or its end."""

    @contextmanager
    def losing() -> Iterator[Any]:
        with connected() as client:
            yield SimpleNamespace(api=Losing(client.api, kept))

    monkeypatch.setattr(execution, "connected", losing)
    with pytest.raises(ClusterError, match="5 times"):
        execute(container.id, ["true"], node="a1")


def test_a_container_that_is_gone_is_an_error(container: Any) -> None:
    container.remove(force=True)
    with pytest.raises(ClusterError, match="true could not"):
        execute(container.id, ["true"], node="a1")
