"""Load the package's plugin, with short names for its options, and define the options and fixtures of the suites."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.topology import DEFAULT_NET_TICKTIME_S, PRODUCTION_NET_TICKTIME_S
from rabbitmq_resilience.plugin import options
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.validation import ValidatedScenario
from rabbitmq_resilience.sut.drivers import OpenDriver
from suites.case_study import DEFAULT_SCALE

pytest_plugins = ["rabbitmq_resilience.plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_short_names(parser)
    group = parser.getgroup("resilience", "RabbitMQ resilience")
    group.addoption("--upgrade-to", help="version, image or folder that brokers are upgraded to (the next series)")
    group.addoption("--production-timing", action="store_true", help="net_ticktime 60, RabbitMQ's own, instead of 5")
    group.addoption("--scale", type=_scale, default=DEFAULT_SCALE, help=f"of the case study's load ({DEFAULT_SCALE:g})")
    group.addoption("--endurance-min", type=_minutes, default=60, help="how long restarts follow each other (60)")
    group.addoption("--budget-s", type=float, default=300, help="how long random schedules are looked for (300)")
    group.addoption("--random-of", type=Path, help="draw random schedules for the scenario in this fault file")


def _scale(text: str) -> float:
    """Return the scale. Raise ArgumentTypeError if it is not over 0, or is over 10."""
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 10:
        raise argparse.ArgumentTypeError(f"{text!r} is no number over 0 up to 10; 1 is the case study's own load")
    return scale


def _minutes(text: str) -> int:
    """Return the minutes. Raise ArgumentTypeError if they are no whole number, or more than a day."""
    if not text.isdecimal() or not 0 < int(text) <= 24 * 60:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of minutes from 1 to {24 * 60}")
    return int(text)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--production-timing") and options.value(config, "fault-file"):
        raise pytest.UsageError(
            "--production-timing is for the suites' own scenarios; in a fault file, write net_ticktime_s: "
            f"{PRODUCTION_NET_TICKTIME_S} in its topology, and make its times fit"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many scenarios ``-n auto`` plays at once: one for each two processors."""
    return max(1, (os.cpu_count() or 1) // 2)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put scenarios with the same topology, mode and broker one after another, so that their cluster can be kept. Small
    ones come first, as their verdicts come sooner."""
    if any(_topology(item) for item in items):
        items.sort(key=_cluster)


def _topology(item: pytest.Item) -> str:
    return str(item.callspec.params.get("topology", "")) if hasattr(item, "callspec") else ""


def _cluster(item: pytest.Item) -> tuple[int, str, str, bool]:
    topology, known = _topology(item), topology_catalogue.names()
    nodes = len(topology_catalogue.load(topology).nodes) if topology in known else 0
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    return nodes, topology, str(chosen.get("mode", "")), chosen.get("queue_type") == "mirrored"


@pytest.fixture(scope="session")
def driver(resilience_driver: OpenDriver) -> OpenDriver:
    return resilience_driver


@pytest.fixture(scope="session")
def testbed(resilience_testbed: RunContext) -> RunContext:
    return resilience_testbed


@pytest.fixture
def show(resilience_show: Callable[[str], None]) -> Callable[[str], None]:
    return resilience_show


@pytest.fixture
def summarised(resilience_summary: Callable[[str], None]) -> Callable[[str], None]:
    return resilience_summary


@pytest.fixture
def judged(resilience_judged: Callable[[Verdict], None]) -> Callable[[Verdict], None]:
    return resilience_judged


@pytest.fixture
def undecided(resilience_undecided: Callable[[str], None]) -> Callable[[str], None]:
    return resilience_undecided


@pytest.fixture
def random_of(pytestconfig: pytest.Config) -> ValidatedScenario | None:
    """Return the scenario for which random schedules are drawn; None for any scenario."""
    path: Path | None = pytestconfig.getoption("--random-of")
    try:
        return None if path is None else fault_file.load(path, driver=options.driver(pytestconfig))
    except fault_file.FaultFileError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture
def containers(pytestconfig: pytest.Config) -> None:
    """Skip tests that act on containers if brokers do not run in containers."""
    name = options.driver(pytestconfig)
    if name != "docker":
        pytest.skip(f"acts on containers, and the driver {name} has none: for --driver docker")


@pytest.fixture(scope="session")
def net_ticktime_s(pytestconfig: pytest.Config) -> int:
    """Return how long brokers take to notice a silent peer, in seconds; suites derive their times from it."""
    return PRODUCTION_NET_TICKTIME_S if pytestconfig.getoption("--production-timing") else DEFAULT_NET_TICKTIME_S


@pytest.fixture(scope="session")
def scale(pytestconfig: pytest.Config) -> float:
    """Return the share of the case study's load in the suites of kills, restarts and backlogs."""
    return float(pytestconfig.getoption("--scale"))


@pytest.fixture(scope="session")
def endurance_min(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("--endurance-min"))
