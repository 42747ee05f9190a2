"""Keep what a session of pytest that plays scenarios shares: the outcome of its tests, and its exit status.

This module imports nothing heavy, like the plugin; heavy modules are imported for the first scenario.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from rabbitmq_resilience.plugin import options, side_by_side
from rabbitmq_resilience.plugin.side_by_side import Plan

if TYPE_CHECKING:
    from rabbitmq_resilience.checkers.verdict import Verdict
    from rabbitmq_resilience.plugin.session_record import SessionRecord, SessionWriter
    from rabbitmq_resilience.runner.judging import Result

#: The exit status if some run was UNKNOWN, and none INVALID; pytest's own statuses end at 5. A session also has it if
#: it had scenarios to play, and none came to a verdict, or if it played runs of a sweep, and none gave a number.
EXIT_UNKNOWN = 10

NOTHING_JUDGED = "nothing was judged: no scenario came to a verdict"

#: The names of the plugins that are there where scenarios are played, and where a night is written down.
RECORD, NIGHT = "resilience-session", "resilience-night"
SIDE_BY_SIDE = "resilience-side-by-side"
#: The fixtures of tests that play a scenario, and of those that play what they draw.
PLAYS, DRAWS = "resilience_play", "resilience_testbed"

#: The verdict of each test whose run did not end as its scenario expects.
RESULTS = pytest.StashKey[dict[str, "Verdict"]]()
#: How many scenarios were to be played or judged, and how many of their runs came to a verdict.
ASKED = pytest.StashKey[int]()
JUDGED = pytest.StashKey[int]()
#: {name of a sweep: why no run of this session gave it a number, or an empty text}.
NO_NUMBERS = pytest.StashKey[dict[str, str]]()
#: Lines for the end of the session.
SUMMARY = pytest.StashKey[list[str]]()
#: Why nothing more is played on a cluster that runs already.
NOT_WHOLE = pytest.StashKey[str]()


def configure(config: pytest.Config) -> None:
    config.stash[RESULTS] = {}
    config.stash[SUMMARY] = []
    config.stash[NO_NUMBERS] = {}
    config.stash[ASKED] = config.stash[JUDGED] = 0
    if side_by_side.is_worker(config):
        config.pluginmanager.register(side_by_side.ReportingWorker(config), SIDE_BY_SIDE)
    elif side_by_side.at_once(config) > 1:
        if options.folder(config, "cluster") is not None:
            raise pytest.UsageError("--cluster: an attached cluster plays one scenario at a time; leave out -n")
        heard = side_by_side.ParallelSession(
            lambda plan: follow(config, plan),
            lambda test: _begins(config, test),
            lambda test, kind, said: hear(config, test, kind, said),
        )
        config.pluginmanager.register(heard, SIDE_BY_SIDE)


def is_played(config: pytest.Config) -> bool:
    return config.pluginmanager.hasplugin(RECORD)


def recorded(config: pytest.Config) -> SessionRecord:
    """Return what records this session; make it for the first scenario."""
    from rabbitmq_resilience.plugin.session_pace import PacePlugin
    from rabbitmq_resilience.plugin.session_record import SessionRecord

    found: SessionRecord | None = config.pluginmanager.getplugin(RECORD)
    if found is None:
        budget_min = options.value(config, "budget-min")
        night = _night(config)
        pace = PacePlugin(config, None if budget_min is None else 60 * budget_min, night.known if night else {})
        found = SessionRecord(pace, night, plays=PLAYS, send=lambda line: side_by_side.say(config, "played", line))
        config.pluginmanager.register(pace)
        config.pluginmanager.register(found, RECORD)
        if night is not None:
            config.pluginmanager.register(night, NIGHT)
    return found


def _night(config: pytest.Config) -> SessionWriter | None:
    """Return what writes a night down; None if no option asks for that. Raise pytest.UsageError if it is missing."""
    from rabbitmq_resilience.extension_points import EXTENSIONS, ExtensionMissingError, is_installed, provided

    options_of_nights = ("nights-dir", "night-name", "machine", "summary", "annotations")
    asked = any(options.value(config, option) is not None for option in options_of_nights)
    on_github = os.environ.get("GITHUB_ACTIONS") == "true" and is_installed(EXTENSIONS["nights"])
    if not asked and not on_github:
        return None
    try:
        plugin = provided("nights")
    except ExtensionMissingError as error:
        raise pytest.UsageError(str(error)) from None
    found: SessionWriter = plugin.of_session(
        config, is_unknown=lambda test: str(config.stash[RESULTS].get(test)) == "UNKNOWN"
    )
    return found


def begin(config: pytest.Config, items: list[pytest.Item], *, asked: Sequence[pytest.Item]) -> None:
    """Leave out tests that play and do not fit into the time, and begin to record the outcome of the others.

    ``asked``: the tests that play or judge.
    """
    pace = recorded(config).pace_plugin
    pace.choose(config, items)
    plan = Plan(
        planned=[item.nodeid for item in items if {PLAYS, DRAWS} & {*getattr(item, "fixturenames", ())}],
        playing=list(pace.pace.waiting),
        left_out=list(pace.pace.left_out),
        asked=sum(item in items for item in asked),
    )
    if side_by_side.is_worker(config):
        side_by_side.end_once()
        side_by_side.announce(config, plan)
    else:
        _begin(config, plan)


def follow(config: pytest.Config, plan: Plan) -> None:
    """Begin the session if other processes play its scenarios."""
    recorded(config).pace_plugin.pace.begin(plan.playing, left_out=plan.left_out)
    _begin(config, plan)


def _begin(config: pytest.Config, plan: Plan) -> None:
    config.stash[ASKED] = plan.asked
    if not only_looks(config):
        recorded(config).begin(plan.planned)


def _begins(config: pytest.Config, test: str) -> None:
    """Show that another process begins to play."""
    pace = recorded(config).pace_plugin.pace
    if test in pace.waiting and not only_looks(config):
        plays(config, test, pace.progress(test))


def plays(config: pytest.Config, what: str, where: str) -> None:
    """Show what is played now, on what, and how far the session is.

    If several processes play, only the session shows it, see ``_begins``.
    """
    if not side_by_side.is_worker(config):
        show(config, f"{'PLAYING':<8} {what}" + (f" ({where})" if where else ""))


def hear(config: pytest.Config, test: str, kind: str, said: Any) -> None:
    """Handle a report of another process about a test as if it came from the session itself."""
    from rabbitmq_resilience.checkers.verdict import Verdict
    from rabbitmq_resilience.runner.cpu_watch import Others

    match kind:
        case "line":
            show(config, said)
        case "summary":
            config.stash[SUMMARY].append(said)
        case "judged":
            judged(config, Verdict(said))
        case "unexpected":
            unexpected(config, test, Verdict(said))
        case "paced":
            others = said["others"] and Others(**said["others"])
            recorded(config).pace_plugin.pace.judged(
                test, said["word"], as_expected=said["as_expected"], others=others or None
            )
        case "played":
            recorded(config).hear(said)


def show(config: pytest.Config, line: str) -> None:
    """Write a permanent line in pytest's own report."""
    if side_by_side.say(config, "line", line):
        return
    reporter: pytest.TerminalReporter | None = config.pluginmanager.getplugin("terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    if reporter is None:
        return
    with capture.global_and_fixture_disabled():
        reporter.ensure_newline()
        if config.get_terminal_writer().width_of_current_line:  # after the dots of other processes
            reporter.write_line("")
        reporter.write_line(line)


def summarise(config: pytest.Config, line: str) -> None:
    """Keep a line for the end of the session."""
    if not side_by_side.say(config, "summary", line):
        config.stash[SUMMARY].append(line)


def judged(config: pytest.Config, verdict: Verdict) -> None:
    """Count a run's verdict, as the exit status depends on whether any run came to a verdict."""
    side_by_side.say(config, "judged", str(verdict))
    config.stash[JUDGED] += str(verdict) != "UNKNOWN"


def unexpected(config: pytest.Config, test: str, verdict: Verdict) -> None:
    """Remember that a run did not end as its scenario expects."""
    side_by_side.say(config, "unexpected", str(verdict))
    config.stash[RESULTS][test] = verdict


def paced(config: pytest.Config, test: str, result: Result) -> None:
    """Count how a scenario ended, for the progress of the session."""
    from rabbitmq_resilience.runner.cpu_watch import Others

    others = result.document["others_cpu"]
    said = {"word": str(result.verdict), "as_expected": result.as_expected, "others": others}
    if not side_by_side.say(config, "paced", said):
        recorded(config).pace_plugin.pace.judged(
            test, result.verdict, as_expected=result.as_expected, others=others and Others(**others)
        )


def give_up(config: pytest.Config, why: str) -> None:
    """End the session, as there is nothing to play on; if several processes play, fail only the test."""
    if side_by_side.is_worker(config):
        pytest.fail(why, pytrace=False)
    pytest.exit(why, returncode=pytest.ExitCode.USAGE_ERROR)


@contextmanager
def on_whole_cluster(config: pytest.Config) -> Iterator[None]:
    """Fail the test if the attached cluster is not whole, and skip all later tests."""
    from rabbitmq_resilience.model.errors import NotWholeError

    if why := config.stash.get(NOT_WHOLE, ""):
        pytest.skip(f"not played: {why}")
    try:
        yield
    except NotWholeError as error:
        config.stash[NOT_WHOLE] = str(error)
        raise


def homes_asked(config: pytest.Config) -> Sequence[str]:
    """Return the versions on which each scenario is played; none if it is played once."""
    named = any(options.value(config, name) for name in ("broker", "cluster", "rabbitmq-home"))
    if named or not options.value(config, "each-home"):
        return ()
    from rabbitmq_resilience.sut.drivers import versions_at_home

    return versions_at_home(options.driver(config))


def only_looks(config: pytest.Config) -> bool:
    """Return whether the session only lists or checks tests, and plays nothing."""
    only_listed = config.option.collectonly or getattr(config.option, "setuponly", False)
    return bool(only_listed or options.value(config, "check-only"))


def exit_status(session: pytest.Session, exitstatus: int) -> int:
    """Return pytest's exit status, or EXIT_UNKNOWN if the only failures are UNKNOWN, or if nothing was judged or
    measured."""
    config = session.config
    no_numbers = [why for why in config.stash[NO_NUMBERS].values() if why]
    config.stash[SUMMARY].extend(no_numbers)
    unexpected = config.stash[RESULTS].values()
    only_unknown = bool(unexpected) and {str(verdict) for verdict in unexpected} == {"UNKNOWN"}
    if exitstatus == pytest.ExitCode.TESTS_FAILED and only_unknown and session.testsfailed == len(unexpected):
        return EXIT_UNKNOWN
    judged_nothing = config.stash[ASKED] > 0 and not config.stash[JUDGED] and not only_looks(config)
    if exitstatus == pytest.ExitCode.OK and judged_nothing:
        config.stash[SUMMARY].append(NOTHING_JUDGED)
        return EXIT_UNKNOWN
    return EXIT_UNKNOWN if exitstatus == pytest.ExitCode.OK and no_numbers else exitstatus
