"""Programs of an image, which run next to a cluster in containers."""

from __future__ import annotations

import io
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.containers.engine_client import CLUSTER_LABEL, BrokerImage, remove_all_of
from rabbitmq_resilience.sut.containers.program_container import UNKNOWN_STATUS, ProgramContainer
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.application_model import ApplicationProcess, ApplicationWorkload
from suites.prepared_applications import NotPreparedError, Role, found
from tests.needs import skipped_without
from tests.parts import ROOT
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.engine

#: Prints a variable and a file, writes to another as a user without rights, and ends with 3 when it is asked to.
SCRIPT = (
    'trap "exit 3" TERM; echo "$AMQP_HOST $(cat "$READ")"; setpriv --reuid 65534 sh -c \'echo line >> "$WRITE"\'; pwd; '
    "while :; do sleep 0.1; done"
)


@pytest.fixture
def labels(tmp_path: Path) -> Iterator[dict[str, str]]:
    yield {CLUSTER_LABEL: str(tmp_path)}
    remove_all_of(tmp_path)


class Started:
    """A program in the image of the broker, and what it has written."""

    def __init__(self, engine: docker.DockerClient, image: str, folder: Path, labels: dict[str, str]) -> None:
        self.log, read, run_in = folder / "web-0.log", folder / "read", folder / "shop"
        read.write_text("is read", encoding="utf-8")
        run_in.mkdir()
        self.written_to = folder / "lines"
        self.written_to.touch()
        self.written_to.chmod(0o666)
        environ = {"AMQP_HOST": "127.0.0.1", "READ": str(read), "WRITE": str(self.written_to)}
        given: dict[str, Any] = {"readable": [read], "writable": [self.written_to], "labels": labels, "log": self.log}
        self.program = ProgramContainer(engine, image, ["sh", "-c", SCRIPT], environ, folder=run_in, **given)
        self.lines = ["127.0.0.1 is read", str(run_in)]
        wait_until(lambda: self.written == self.lines, timeout_s=60, what="the program to write")

    @property
    def written(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []


def left(engine: docker.DockerClient, labels: dict[str, str]) -> list[Any]:
    (label,) = labels.items()
    return list(engine.containers.list(all=True, filters={"label": "=".join(label)}))


@pytest.fixture
def started(engine: docker.DockerClient, engine_image: BrokerImage, tmp_path: Path, labels: dict[str, str]) -> Started:
    return Started(engine, engine_image.name, tmp_path, labels)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 3), (signal.SIGKILL, 137)])
def test_a_program_of_an_image_writes_is_signalled_and_goes(
    number: int, status: int, engine: docker.DockerClient, started: Started, labels: dict[str, str]
) -> None:
    assert started.program.poll() is None
    assert started.program.pid > 0
    assert started.written_to.read_text(encoding="utf-8") == "line\n"
    with pytest.raises(subprocess.TimeoutExpired):
        started.program.wait(0.01)
    started.program.send_signal(number)
    assert started.program.wait(60) == started.program.poll() == status
    assert left(engine, labels) == []
    started.program.kill_all()  # it has ended, which is no error


def test_a_program_goes_with_its_cluster(
    engine: docker.DockerClient, started: Started, tmp_path: Path, labels: dict[str, str]
) -> None:
    remove_all_of(tmp_path)
    assert started.program.wait(60) in {UNKNOWN_STATUS, 137}
    assert left(engine, labels) == []


def test_an_image_that_there_is_not_is_named(engine: docker.DockerClient, tmp_path: Path) -> None:
    given: dict[str, Any] = {"folder": None, "readable": [], "writable": [], "labels": {}, "log": tmp_path / "log"}
    with pytest.raises(ClusterError, match="no-such/image:1"):
        ProgramContainer(engine, "127.0.0.1:9/no-such/image:1", [], {}, **given)


def example() -> Scenario:
    return fault_file.load(ROOT / "faults" / "examples" / "application.fault.yaml", driver="docker")


def played(scenario: Scenario, folder: Path) -> Result:
    with skipped_without():
        opened = DRIVERS["docker"].open(None)
    with closing(opened), ClusterPool(opened.form) as pool:
        return run_validated(scenario, RunContext(pool, folder, io.StringIO(), driver="docker"))


def test_processes_of_this_machine_reach_brokers_in_containers(tmp_path: Path) -> None:
    result = played(example(), tmp_path)
    assert str(result.verdict) == "VALID", result.document


def test_a_program_of_an_image_comes_back(
    engine: docker.DockerClient, engine_image: BrokerImage, tmp_path: Path
) -> None:
    """It is a program in Go, which needs nothing of its image but the C library."""
    try:
        program = found("amqp091-go")
    except NotPreparedError as error:
        pytest.skip(str(error))
    scenario = example()
    assert isinstance(scenario.workload, ApplicationWorkload)
    roles: list[tuple[Role, dict[str, Any]]] = [("producer", {"stops": "before_drain"}), ("worker", {"number": 2})]
    processes = tuple(
        ApplicationProcess(
            name=role,
            image=engine_image.name,
            command=tuple(program.command(role)),
            folder=program.folder,
            **fields,
        )
        for role, fields in roles
    )
    workload = scenario.workload.model_copy(update={"processes": processes})
    silent = scenario.invariants.model_copy(update={"committed": None})  # this program writes no lines on its work
    result = played(scenario.model_copy(update={"workload": workload, "invariants": silent}), tmp_path)
    assert str(result.verdict) == "VALID", result.document
    assert [one for one in engine.containers.list() if "orders" in str(one.attrs["Path"])] == []
