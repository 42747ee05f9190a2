"""What a session of pytest has in common if it plays scenarios: what becomes of them, and its exit status.

Light, as the plugin is: what is heavy is imported when the first scenario is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from rabbitmq_resilience import options

if TYPE_CHECKING:
    from rabbitmq_resilience.invariants.verdict import Verdict
    from rabbitmq_resilience.nights.recording import NightPlugin

#: pytest's own statuses end at 5: only this one says that a run could not tell, and that none was INVALID. A session in
#: which scenarios were to be played, and none came to a verdict, has it too.
EXIT_UNKNOWN = 10

NOTHING_JUDGED = "nothing was judged: no scenario came to a verdict"

#: The name of the plugin that is there where scenarios are played.
NIGHT = "resilience-night"
#: The fixtures of tests that play a scenario, and of those that play what they draw.
PLAYS, DRAWS = "resilience_play", "resilience_testbed"

#: The verdict of each test whose run did not end as its scenario expects.
RESULTS = pytest.StashKey[dict[str, "Verdict"]]()
#: How many scenarios were to be played or judged, and how many of their runs came to a verdict.
ASKED = pytest.StashKey[int]()
JUDGED = pytest.StashKey[int]()
#: Lines for the end of the session.
SUMMARY = pytest.StashKey[list[str]]()


def configure(config: pytest.Config) -> None:
    config.stash[RESULTS] = {}
    config.stash[SUMMARY] = []
    config.stash[ASKED] = config.stash[JUDGED] = 0


def is_played(config: pytest.Config) -> bool:
    return config.pluginmanager.hasplugin(NIGHT)


def night(config: pytest.Config) -> NightPlugin:
    """What writes this session down, made for its first scenario."""
    from rabbitmq_resilience.nights.recording import NightPlugin, Settings
    from rabbitmq_resilience.play.session import PacePlugin

    found: NightPlugin | None = config.pluginmanager.getplugin(NIGHT)
    if found is None:
        settings = Settings(
            root=config.rootpath,
            runs=options.runs_folder(config),
            nights=options.folder(config, "nights-dir"),
            name=options.value(config, "night-name"),
            machine_name=options.value(config, "machine"),
            driver=options.driver(config),
            budget_min=options.value(config, "budget-min"),
            summary=options.folder(config, "summary"),
            annotations=options.value(config, "annotations"),
            plays=PLAYS,
            draws=DRAWS,
            could_not_tell=lambda test: str(config.stash[RESULTS].get(test)) == "UNKNOWN",
        )
        budget_s = None if settings.budget_min is None else 60 * settings.budget_min
        found = NightPlugin(settings, lambda known: PacePlugin(config, budget_s, known))
        config.pluginmanager.register(found.pace_plugin)
        config.pluginmanager.register(found, NIGHT)
    return found


def begin(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of all tests what plays and does not fit into the time, and begin to write down what becomes of the
    rest."""
    found = night(config)
    found.pace_plugin.choose(config, items)
    if not only_looks(config) and not _is_worker(config):
        found.begin(items)


def refuse_worker(config: pytest.Config) -> None:
    """Fails the test that asks, in a process of pytest-xdist."""
    if _is_worker(config):
        pytest.fail("scenarios share one cluster and one machine: play them without pytest-xdist's -n", pytrace=False)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def homes_asked(config: pytest.Config) -> Sequence[str]:
    """Return the versions on which each scenario is to be played; none where it is played once."""
    named = any(options.value(config, name) for name in ("broker", "cluster", "rabbitmq-home"))
    if named or not options.value(config, "each-home"):
        return ()
    from rabbitmq_resilience.clusters.drivers import versions_at_home

    return versions_at_home(options.driver(config))


def only_looks(config: pytest.Config) -> bool:
    """Whether it plays nothing, and is not meant to."""
    only_listed = config.option.collectonly or getattr(config.option, "setuponly", False)
    return bool(only_listed or options.value(config, "check-only"))


def exit_status(session: pytest.Session, exitstatus: int) -> int:
    """That of pytest, or EXIT_UNKNOWN where nothing else failed: "could not be told" is not "broken"."""
    config = session.config
    unexpected = config.stash[RESULTS].values()
    only_unknown = bool(unexpected) and {str(verdict) for verdict in unexpected} == {"UNKNOWN"}
    if exitstatus == pytest.ExitCode.TESTS_FAILED and only_unknown and session.testsfailed == len(unexpected):
        return EXIT_UNKNOWN
    judged_nothing = config.stash[ASKED] > 0 and not config.stash[JUDGED] and not only_looks(config)
    if exitstatus == pytest.ExitCode.OK and judged_nothing:
        config.stash[SUMMARY].append(NOTHING_JUDGED)
        return EXIT_UNKNOWN
    return exitstatus
