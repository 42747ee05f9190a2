"""What several rooms' tests need."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest
from hypothesis import HealthCheck, settings

from rabbitmq_resilience.sut.containers.engine_client import BrokerImage, connect, find_broker_image
from rabbitmq_resilience.tools.distributions import BrokerHome, find_broker, find_prometheus
from rabbitmq_resilience.tools.homes import BOOKWORM
from tests.needs import skipped_without

pytest_plugins = ["tests.messages", "tests.tiers"]

# No property depends on how busy the machine is. Where CI=true, Hypothesis has chosen its profile `ci`: the same cases
# each time, so that a change is judged by what it did. Elsewhere each run looks for new ones.
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", _patient, max_examples=25)
settings.register_profile("many", _patient, max_examples=1000)
settings.load_profile("few")


_WORKERS_MAX = 5

#: Where none is named, tests play on the version at home that has all types of queues.
TESTED = "3.10.8"
if "RABBITMQ_HOME" not in os.environ and BOOKWORM.is_there():
    os.environ["RABBITMQ_HOME"] = str(BOOKWORM.place())

#: The files that take longest, by measured seconds: they come first, so that none is waited for alone at the end.
LONGEST_FIRST = (
    "tests/test_installed.py",
    "tests/faults/test_operators_on_brokers.py",
    "tests/faults/test_faults_on_brokers.py",
    "tests/clusters/test_running_cluster.py",
    "tests/faults/test_links_on_brokers.py",
    "tests/play/test_judging.py",
    "tests/play/test_measured_runs.py",
    "tests/workloads/test_running_workload.py",
    "tests/faults/test_broken_balancers.py",
    "tests/clusters/test_balancers_on_brokers.py",
    "tests/play/test_interrupted_runs.py",
    "tests/clusters/attached/test_attached_on_brokers.py",
    "tests/clusters/test_observer_on_brokers.py",
    "tests/workloads/test_workers.py",
    "tests/clusters/test_prometheus.py",
    "tests/test_plugin.py",
    "tests/sweeps/test_compare_command.py",
)


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.filterwarnings("error"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest. The tests of a file share its clusters, so they stay together."""
    turns = {name: turn for turn, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: turns.get(item.nodeid.partition("::")[0], len(turns)))


def pytest_collection_finish() -> None:
    """What is there by now stays, and need not be looked through again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return as many as there are processors for tests that compute, and one more for those that wait for brokers."""
    waiting = 0 if config.getoption("--tier") == "check" else 1
    return min((os.cpu_count() or 1) + waiting, _WORKERS_MAX)


@pytest.fixture(autouse=True)
def nothing_left_open_by_a_test() -> Iterator[None]:
    """Whatever a test opened and lost is collected in that test, and is its failure: not one of another test, or of
    none, as the moment of the next collection would have it. What is younger than the test is soon looked through."""
    gc.disable()
    yield
    gc.collect(0)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def nothing_left_open_by_a_file() -> Iterator[None]:
    """The same for what its tests share."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def state_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs keep of clusters that are there already, under the name of the cluster. Tests beside each other have
    clusters of one name, and one would have to wait for the other."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """The server that set-up provides where it can; skips where there is none."""
    with skipped_without():
        return find_prometheus()


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """The container engine; skips where none answers. Whoever needs it is marked ``engine``."""
    with skipped_without():
        client = connect()
    with closing(client):
        yield client


@pytest.fixture(scope="session")
def engine_image(engine: docker.DockerClient) -> BrokerImage:
    """An image of a broker; skips where it cannot be had."""
    with skipped_without():
        return find_broker_image(engine, TESTED)


@pytest.fixture(scope="session")
def measurable(prometheus: Path, broker: BrokerHome) -> None:  # noqa: ARG001 - it must be there
    """Skips where brokers do not tell of each queue what measured scenarios need."""
    if broker.release < (3, 10):
        pytest.skip(f"RabbitMQ {broker.version} tells no numbers of single queues")


@pytest.fixture(scope="session")
def pausing(broker: BrokerHome) -> None:
    """Skips where a new cluster heeds no partition mode: from 4.2 on its metadata store is Khepri by default."""
    if broker.release >= (4, 2):
        pytest.skip(f"no node of RabbitMQ {broker.version} pauses")


@pytest.fixture
def has_queue_type(broker: BrokerHome) -> Callable[[str], None]:
    """Skips where brokers do not have queues of that type."""

    def demanded(queue_type: str) -> None:
        if queue_type == "mirrored" and broker.release >= (4, 0):
            pytest.skip(f"RabbitMQ {broker.version} has no mirrored queues")

    return demanded


@pytest.fixture(scope="session")
def broker() -> BrokerHome:
    """The broker of the driver local."""
    return find_broker()
