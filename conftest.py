"""Options, markers and fixtures; wiring only."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from faults import fault_file
from faults.scenario import Scenario
from invariants.verdict import Verdict
from reports.run_directory import RunDirectory, RunDirectoryError
from reports.terminal import outcome_line, story
from suites.case_study import DEFAULT_SCALE
from suites.judging import Result
from suites.pace import PacePlugin
from suites.repeats import Repeats, runs
from suites.scenario import Bench, run_scenario
from topologies.distributions import BrokerHome, ToolMissingError, find_broker
from topologies.drivers import DRIVERS, Opened, WrongBrokerError
from topologies.images import ImageNameError
from topologies.pool import ClusterPool
from topologies.spec import DEFAULT_NET_TICKTIME_S, PRODUCTION_NET_TICKTIME_S

#: pytest's own statuses end at 5: only this one says that a run could not tell, and that none was INVALID.
EXIT_UNKNOWN = 10

REPEATS_MAX = 1000

#: The name of the plugin that tells how far a session has come.
PACE = "pace"

FAULT_FILES = pytest.StashKey[list[tuple[str, Scenario]]]()
RANDOM_OF = pytest.StashKey[Scenario | None]()
TERMINAL = pytest.StashKey[TextIO]()
RECHECKED = pytest.StashKey[list[RunDirectory]]()
#: The verdict of each test whose run did not end as its scenario expects.
RESULTS = pytest.StashKey[dict[str, Verdict]]()
#: Lines for the end of the session.
SUMMARY = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("resilience", "RabbitMQ resilience")
    group.addoption("--driver", default="local", choices=sorted(DRIVERS), help="what brokers run in")
    group.addoption("--fault-file", action="append", default=[], type=Path, help="play this fault file, nothing else")
    group.addoption("--recheck", action="append", default=[], type=Path, help="judge this run directory again")
    group.addoption("--broker", help="version or image of the broker, for --driver docker (3.10.8)")
    group.addoption("--upgrade-to", help="version or image that brokers are upgraded to (the next series)")
    group.addoption("--rabbitmq-home", type=Path, help="an unpacked RabbitMQ (default: RABBITMQ_HOME, PATH, .tools)")
    group.addoption("--production-timing", action="store_true", help="net_ticktime 60, RabbitMQ's own, instead of 5")
    group.addoption("--scale", type=_scale, default=DEFAULT_SCALE, help=f"of the case study's load ({DEFAULT_SCALE:g})")
    group.addoption("--endurance-min", type=_minutes, default=60, help="how long restarts follow each other (60)")
    group.addoption("--check-only", action="store_true", help="check every scenario, and play none")
    group.addoption("--budget-min", type=float, help="play what fits into so many minutes, longest not played first")
    group.addoption("--repeat", type=_repeats, default=1, help="play each scenario so often, and tell rates (1)")
    group.addoption("--budget-s", type=float, default=300, help="how long random schedules are looked for (300)")
    group.addoption("--random-of", type=Path, help="draw random schedules for the scenario in this fault file")
    group.addoption("--seed", type=int, help="decides everything random (default: the scenario's own)")
    group.addoption("--runs-dir", type=Path, default=Path("reports/runs"), help="where run directories go")


def _scale(text: str) -> float:
    """Raises ArgumentTypeError for what is no part of the whole, or more than ten times it."""
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 10:
        raise argparse.ArgumentTypeError(f"{text!r} is no number over 0 up to 10; 1 is the case study's own load")
    return scale


def _minutes(text: str) -> int:
    """Raises ArgumentTypeError for what is no whole number of minutes, or is over a day."""
    if not text.isdecimal() or not 0 < int(text) <= 24 * 60:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of minutes from 1 to {24 * 60}")
    return int(text)


def _repeats(text: str) -> int:
    """Raises ArgumentTypeError for what is no number of runs."""
    if not text.isdecimal() or not 0 < int(text) <= REPEATS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of runs from 1 to {REPEATS_MAX}")
    return int(text)


def pytest_configure(config: pytest.Config) -> None:
    home = config.getoption("--rabbitmq-home")
    if home is not None:
        os.environ["RABBITMQ_HOME"] = str(home)  # for everything that looks for a broker, processes of tests too
    if config.getoption("--production-timing") and config.getoption("--fault-file"):
        raise pytest.UsageError(
            "--production-timing is for the suites' own scenarios; in a fault file, write net_ticktime_s: "
            f"{PRODUCTION_NET_TICKTIME_S} in its topology, and make its times fit"
        )
    try:
        driver = config.getoption("--driver")
        loaded = [(str(path), fault_file.load(path, driver=driver)) for path in config.getoption("--fault-file")]
        base = config.getoption("--random-of")
        config.stash[RANDOM_OF] = None if base is None else fault_file.load(base, driver=driver)
        opened = [RunDirectory.open(path) for path in config.getoption("--recheck")]
    except (fault_file.FaultFileError, RunDirectoryError) as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[TERMINAL] = os.fdopen(os.dup((sys.__stdout__ or sys.stdout).fileno()), "w", buffering=1)
    config.stash[FAULT_FILES] = loaded
    config.stash[RECHECKED] = opened
    if (loaded or opened) and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.args[:] = [str(config.rootpath / "suites")]  # all other tests would only be looked for
    config.stash[RESULTS] = {}
    config.stash[SUMMARY] = []
    budget_min = config.getoption("--budget-min")
    config.pluginmanager.register(PacePlugin(config, None if budget_min is None else 60 * budget_min), PACE)


def pytest_unconfigure(config: pytest.Config) -> None:
    if TERMINAL in config.stash:
        config.stash[TERMINAL].close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "given_scenario" in metafunc.fixturenames:
        given = metafunc.config.stash[FAULT_FILES]
        metafunc.parametrize("given_scenario", [s for _, s in given], ids=[name for name, _ in given])
    if "recorded_run" in metafunc.fixturenames:
        runs = metafunc.config.stash[RECHECKED]
        metafunc.parametrize("recorded_run", runs, ids=[run.name for run in runs])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --fault-file or --recheck only these run; without them, their tests are not there at all."""
    given = {"given_scenario": "--fault-file", "recorded_run": "--recheck"}
    asked = any(config.getoption(option) for option in given.values())

    def wanted(item: pytest.Item) -> bool:
        names = [name for name in given if name in getattr(item, "fixturenames", ())]
        return any(config.getoption(given[name]) for name in names) if names or asked else True

    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = sorted(filter(wanted, items), key=_cluster)


def _cluster(item: pytest.Item) -> tuple[str, ...]:
    """Scenarios of one topology and mode follow each other, so that their cluster can be kept."""
    callspec = getattr(item, "callspec", None)
    return tuple(str(callspec.params.get(name, "")) for name in ("topology", "mode")) if callspec else ("", "")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Tell "could not be told" from "broken": UNKNOWN has an exit status of its own where nothing else failed."""
    unexpected = session.config.stash[RESULTS].values()
    only_unknown = bool(unexpected) and set(unexpected) == {Verdict.UNKNOWN}
    if exitstatus == pytest.ExitCode.TESTS_FAILED and only_unknown and session.testsfailed == len(unexpected):
        session.exitstatus = EXIT_UNKNOWN


@pytest.fixture(scope="session")
def live(pytestconfig: pytest.Config) -> TextIO:
    """The terminal itself, while pytest captures what tests print."""
    return pytestconfig.stash[TERMINAL]


@pytest.fixture
def tell(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Writes a line that stays, in pytest's own report."""
    reporter: pytest.TerminalReporter = pytestconfig.pluginmanager.getplugin("terminalreporter")
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def told(line: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(line)

    return told


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash[SUMMARY]:
        terminalreporter.write_sep("-", line)


@pytest.fixture
def random_of(pytestconfig: pytest.Config) -> Scenario | None:
    """The scenario for which random schedules are drawn; None for any."""
    return pytestconfig.stash[RANDOM_OF]


@pytest.fixture
def summarised(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Keeps a line for the end of the session."""
    return pytestconfig.stash[SUMMARY].append


@pytest.fixture(scope="session")
def driver(pytestconfig: pytest.Config) -> Opened:
    """What the options name, with its broker found."""
    try:
        return DRIVERS[pytestconfig.getoption("--driver")].open(pytestconfig.getoption("--broker"))
    except (ToolMissingError, WrongBrokerError, ImageNameError) as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture
def containers(pytestconfig: pytest.Config) -> None:
    """Skips what acts on containers where brokers run in none."""
    name = pytestconfig.getoption("--driver")
    if "containers" not in DRIVERS[name].offers:
        pytest.skip(f"acts on containers, and the driver {name} has none: for --driver docker")


@pytest.fixture(scope="session")
def clusters(driver: Opened) -> Iterator[ClusterPool]:
    """Forms clusters of the broker that the options name, one at a time, and keeps the last."""
    with ClusterPool(driver.form) as pool:
        yield pool


@pytest.fixture(scope="session")
def broker() -> BrokerHome:
    """The broker of the local driver, for tests of this project."""
    return find_broker()


@pytest.fixture(scope="session")
def bench(pytestconfig: pytest.Config, driver: Opened, clusters: ClusterPool, live: TextIO) -> Bench:
    runs = pytestconfig.rootpath / pytestconfig.getoption("--runs-dir")
    name = pytestconfig.getoption("--driver")
    return Bench(clusters, runs, live, driver.find_prometheus, driver=name, require=driver.require)


@pytest.fixture(scope="session")
def net_ticktime_s(pytestconfig: pytest.Config) -> int:
    """How long brokers take to notice a silent peer; suites derive their times from it."""
    return PRODUCTION_NET_TICKTIME_S if pytestconfig.getoption("--production-timing") else DEFAULT_NET_TICKTIME_S


@pytest.fixture(scope="session")
def scale(pytestconfig: pytest.Config) -> float:
    """The part of the case study's load that the suites of kills, restarts and backlogs put on their clusters."""
    return float(pytestconfig.getoption("--scale"))


@pytest.fixture(scope="session")
def endurance_min(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("--endurance-min"))


@pytest.fixture
def accept(request: pytest.FixtureRequest) -> Callable[[Result], Result]:
    """Fails with the run's story unless it ended as its scenario expects."""

    def accepted(result: Result) -> Result:
        if not result.as_expected:
            request.config.stash[RESULTS][request.node.nodeid] = result.verdict
            pytest.fail(story(result.document, result.run.path), pytrace=False)
        return result

    return accepted


@pytest.fixture
def play(
    request: pytest.FixtureRequest,
    tell: Callable[[str], None],
    driver: Opened,
    bench: Bench,
    accept: Callable[[Result], Result],
) -> Callable[..., Result]:
    """Plays a scenario with the options of the command line, at most ``tries`` times until it ends as expected, and
    returns its last run; fails with the story of one that did not, and shows as an expected failure what is a rate by
    nature."""

    pace = request.config.pluginmanager.getplugin(PACE).pace

    def once(scenario: Scenario, run: str) -> Result:
        where = ", ".join(filter(None, [run, pace.told(request.node.nodeid)]))
        tell(f"{'PLAYING':<8} {scenario.title}{where and f' ({where})'}")
        result = run_scenario(scenario, bench)
        tell(outcome_line(result.document, result.run.path))
        return result

    def played(scenario: Scenario, *, tries: int = 1) -> Result:
        seed = request.config.getoption("--seed")
        if seed is not None:
            scenario = scenario.model_copy(update={"seed": seed})
        if not scenario.applies_to(driver.broker_version):
            pytest.skip(f"for RabbitMQ {scenario.broker}, this is {driver.broker_version}")
        if request.config.getoption("--check-only"):
            checked_for = request.config.getoption("--driver")
            fault_file.parse(fault_file.dump(scenario), source=scenario.title, driver=checked_for)
            pytest.skip("checked, not played")
        times = request.config.getoption("--repeat")
        repeats = Repeats(scenario, runs(lambda run: once(scenario, run), repeat=times, tries=tries))
        for result in repeats.results:
            pace.judged(request.node.nodeid, result.verdict, as_expected=result.as_expected)
        if times > 1:
            tell(f"{'RATE':<8} {scenario.title}: {repeats.told}")
        for result in repeats.unexpected:
            accept(result)
        if repeats.is_rate:
            pytest.xfail(f"a rate, no pass: {repeats.told}")
        return repeats.results[-1]

    return played
