"""Connect this package to pytest: options, fixtures, and fault files as tests. This module only wires others.

In a session that plays no scenario, the plugin prints nothing, sets no filter and imports nothing heavy; so most
imports are in functions. The names that it adds to pytest have the prefix ``resilience``, except the fixture ``play``
and options that no other plugin has.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from rabbitmq_resilience.plugin import collecting, failures, options, preparing, sessions, side_by_side

if TYPE_CHECKING:
    from rabbitmq_resilience.checkers.verdict import Verdict
    from rabbitmq_resilience.runner.environments import Environment, Environments
    from rabbitmq_resilience.runner.judging import Result
    from rabbitmq_resilience.runner.run import RunContext
    from rabbitmq_resilience.scenario.model import Scenario
    from rabbitmq_resilience.scenario.validation import ValidatedScenario
    from rabbitmq_resilience.sut.drivers import OpenDriver
    from rabbitmq_resilience.sut.pool import ClusterPool

#: The fixtures of tests that play scenarios or judge runs.
PLAYING = frozenset({sessions.PLAYS, sessions.DRAWS, "resilience_accept"})

#: The fixture with the version at home on which a test plays.
HOME = "resilience_home"

TERMINAL = pytest.StashKey[TextIO]()


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> Generator[None, Any, Any]:
    loaded = yield
    options.add_unprefixed(parser, called_in=early_config.invocation_params.dir)
    return loaded


def pytest_configure(config: pytest.Config) -> None:
    sessions.configure(config)
    named: list[Path] = options.value(config, "fault-file") or []
    rechecked: list[Path] = options.value(config, "recheck") or []
    for path in named:
        if not path.is_file():
            raise pytest.UsageError(f"--fault-file={path}: there is no such file")
    config.stash[collecting.GIVEN] = frozenset(path.resolve() for path in named)
    config.stash[collecting.RECHECKED] = frozenset(path.resolve() for path in rechecked)
    if rechecked:
        collecting.require_scenarios(rechecked)
    if named or rechecked:
        config.args[:] = [str(path) for path in [*named, *(path / "fault.yaml" for path in rechecked)]]


def pytest_unconfigure(config: pytest.Config) -> None:
    if TERMINAL in config.stash:
        config.stash[TERMINAL].close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return collecting.collected(file_path, parent)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if HOME in metafunc.fixturenames and (versions := sessions.homes_asked(metafunc.config)):
        metafunc.parametrize(HOME, versions, indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, Any, Any]:
    """Let a test pass whose scenario was only checked."""
    try:
        return (yield)
    except preparing.Checked:
        return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Explain an error before a verdict in a sentence, and write its traceback to a file."""
    report = yield
    played = not PLAYING.isdisjoint(getattr(item, "fixturenames", ()))
    if report.failed and played and call.excinfo and not item.config.option.fulltrace:
        report.longrepr = failures.shown(call.excinfo, item.nodeid, options.runs_folder(item.config)) or report.longrepr
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    playing = [item for item in items if PLAYING & {*getattr(item, "fixturenames", ())}]
    if not playing:
        return
    for item in playing:
        item.add_marker(pytest.mark.filterwarnings("default"))  # the verdict alone decides
    for option, variable in (("rabbitmq-home", "RABBITMQ_HOME"), ("erlang", "ERLANG_HOME")):
        if (named := options.value(config, option)) is not None:
            os.environ[variable] = str(named)  # all code that looks for a broker reads it
    sessions.begin(config, items, asked=playing)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Show open resources of scenarios as warnings, no matter how pytest handles warnings, and set the exit status."""
    if not sessions.is_played(session.config):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        gc.collect()
    session.exitstatus = sessions.exit_status(session, exitstatus)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash[sessions.SUMMARY]:
        terminalreporter.write_sep("-", line)


@pytest.fixture(scope="session")
def resilience_terminal(pytestconfig: pytest.Config) -> TextIO:
    """Return the terminal itself, while pytest captures what tests print; a null device if processes share it."""
    if TERMINAL not in pytestconfig.stash:
        shared = side_by_side.is_worker(pytestconfig)
        file = os.devnull if shared else os.dup((sys.__stdout__ or sys.stdout).fileno())
        pytestconfig.stash[TERMINAL] = open(file, "w", buffering=1, encoding="utf-8")  # noqa: PTH123, SIM115 - or a number
    return pytestconfig.stash[TERMINAL]


@pytest.fixture
def resilience_show(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Return a function that writes a permanent line in pytest's own report."""
    return partial(sessions.show, pytestconfig)


@pytest.fixture
def resilience_summary(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Return a function that keeps a line for the end of the session."""
    return partial(sessions.summarise, pytestconfig)


@pytest.fixture
def resilience_judged(request: pytest.FixtureRequest) -> Callable[[Verdict], None]:
    """Return a function that counts a run's verdict, as the exit status depends on whether any run had one."""
    return partial(sessions.judged, request.config)


@pytest.fixture
def resilience_undecided(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that fails a test as UNKNOWN, so that it does not count as a broken promise."""
    from rabbitmq_resilience.checkers.verdict import Verdict

    def undecided(why: str) -> None:
        sessions.unexpected(request.config, request.node.nodeid, Verdict.UNKNOWN)
        pytest.fail(why, pytrace=False)

    return undecided


@pytest.fixture(scope="session")
def resilience_driver(pytestconfig: pytest.Config) -> Iterator[OpenDriver]:
    """Yield the driver that the options name, with its broker found; end the session if there is none."""
    from dataclasses import replace

    from rabbitmq_resilience.extension_points import ExtensionMissingError, provided
    from rabbitmq_resilience.model.errors import ClusterError
    from rabbitmq_resilience.model.yaml_files import FileRefusedError
    from rabbitmq_resilience.sut.drivers import DRIVERS
    from rabbitmq_resilience.sut.processes.version_homes import WrongBrokerError
    from rabbitmq_resilience.tools.distributions import ToolMissingError
    from rabbitmq_resilience.tools.image_names import ImageNameError
    from rabbitmq_resilience.tools.locations import OPTION

    file = options.folder(pytestconfig, "cluster")
    try:
        if file is not None:
            opened = provided("attached clusters").attach(file)
        else:
            opened = DRIVERS[options.driver(pytestconfig)].open(options.value(pytestconfig, "broker"))
    except (
        ToolMissingError,
        WrongBrokerError,
        ImageNameError,
        ClusterError,
        FileRefusedError,
        ExtensionMissingError,
    ) as error:
        sessions.give_up(pytestconfig, str(error))
    if options.value(pytestconfig, "broker"):
        opened = replace(opened, origin=f"named by {OPTION}broker")
    with closing(opened):
        yield opened
        if left := opened.not_whole():
            pytestconfig.stash[sessions.SUMMARY].insert(0, left)


@pytest.fixture(scope="session")
def resilience_clusters(resilience_driver: OpenDriver) -> Iterator[ClusterPool]:
    """Yield a pool that forms clusters of the broker that the options name, one at a time, and keeps the last."""
    from rabbitmq_resilience.sut.pool import ClusterPool

    with ClusterPool(resilience_driver.form, keeps=resilience_driver.keeps) as pool:
        yield pool


@pytest.fixture(scope="session")
def resilience_testbed(
    pytestconfig: pytest.Config,
    resilience_driver: OpenDriver,
    resilience_clusters: ClusterPool,
    resilience_terminal: TextIO,
) -> RunContext:
    from rabbitmq_resilience.runner.run import RunContext

    return RunContext(
        resilience_clusters,
        options.runs_folder(pytestconfig),
        resilience_terminal,
        resilience_driver.find_prometheus,
        driver=options.driver(pytestconfig),
        require=resilience_driver.require,
        judged=sessions.recorded(pytestconfig).judged,
    )


@pytest.fixture(scope="session")
def resilience_grounds(request: pytest.FixtureRequest) -> Iterator[Environments]:
    """Yield all that the session plays on: what its options name, and what scenarios ask for instead."""
    from rabbitmq_resilience.runner.environments import Environment, Environments

    def own() -> Environment:
        of_session = ("resilience_driver", "resilience_clusters", "resilience_testbed")
        return Environment(*map(request.getfixturevalue, of_session))

    with Environments(own) as grounds:
        yield grounds


@pytest.fixture
def resilience_accept(
    request: pytest.FixtureRequest, resilience_judged: Callable[[Verdict], None]
) -> Callable[[Result], Result]:
    """Return a function that fails with the run's story unless the run ended as its scenario expects."""

    def accepted(result: Result) -> Result:
        resilience_judged(result.verdict)
        if not result.as_expected:
            sessions.unexpected(request.config, request.node.nodeid, result.verdict)
            pytest.fail(result.story(), pytrace=False)
        return result

    return accepted


@pytest.fixture
def play(resilience_play: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function that plays a scenario with the options of the command line, and returns its last run.

    It plays at most ``tries`` times until a run ends as expected. ``each`` is called with every run before its verdict
    is compared. ``driver`` and ``broker`` replace those of the session. The test fails with the story of a run that did
    not end as expected. A scenario that is a rate by nature is shown as an expected failure.
    """
    return resilience_play


@pytest.fixture
def resilience_home(request: pytest.FixtureRequest) -> str | None:
    """Return the version at home to play on; None for the first one that fits."""
    found: str | None = getattr(request, "param", None)
    return found


@pytest.fixture
def resilience_play(
    request: pytest.FixtureRequest,
    resilience_home: str | None,
    resilience_show: Callable[[str], None],
    resilience_accept: Callable[[Result], Result],
    resilience_judged: Callable[[Verdict], None],
) -> Callable[..., Result]:
    """Return the function of ``play``, for repositories with another fixture of that name."""
    from rabbitmq_resilience.report.terminal import outcome_line
    from rabbitmq_resilience.runner.repeats import Repeats, runs
    from rabbitmq_resilience.runner.run import run_scenario
    from rabbitmq_resilience.scenario.notes import noted
    from rabbitmq_resilience.scenario.validation import validated

    config, show = request.config, resilience_show
    pace = sessions.recorded(config).pace_plugin.pace
    if options.value(config, "check-only"):
        from rabbitmq_resilience.plugin.checking import checked

        return checked(config, show)
    grounds: Environments = request.getfixturevalue("resilience_grounds")

    def once(scenario: ValidatedScenario, run: str, ground: Environment) -> Result:
        where = "; ".join(filter(None, [ground.description, run, pace.progress(request.node.nodeid)]))
        sessions.plays(config, scenario.title, where)
        turn = side_by_side.turn(config, alone=scenario.takes_the_machine)
        with turn, sessions.on_whole_cluster(config), failures.interrupted(scenario.title, show):
            result = run_scenario(scenario, ground.testbed)
        line = outcome_line(result.document, result.run.path)
        show("\n".join([line, *noted(scenario, unless=result.as_expected)]))
        return result

    def played(
        scenario: Scenario,
        *,
        tries: int = 1,
        each: Callable[[Result], None] = preparing.ignore,
        driver: str | None = None,
        broker: str | None = None,
        ground: Environment | None = None,
        home: str | None = resilience_home,
    ) -> Result:
        scenario = preparing.fitted(preparing.seeded(scenario, config), config)
        if ground is None:
            named = driver or broker
            ground = grounds.at(driver, broker) if named else preparing.at_home(scenario, home, grounds)
        if not scenario.applies_to(ground.opened.broker_version):
            pytest.skip(f"for RabbitMQ {scenario.broker}, this is {ground.opened.broker_version}")
        times = options.value(config, "repeat")
        playable = validated(scenario, driver=ground.testbed.driver)
        repeats = Repeats(playable, runs(lambda run: once(playable, run, ground), repeat=times, tries=tries))
        for result in repeats.results:
            resilience_judged(result.verdict)
            sessions.paced(config, request.node.nodeid, result)
            each(result)
        if times > 1:
            show(f"{'RATE':<8} {scenario.title}: {repeats.rates}")
        for result in repeats.unexpected:
            resilience_accept(result)
        if repeats.is_rate:
            pytest.xfail(f"a rate, no pass: {repeats.rates}")
        return repeats.results[-1]

    return played
