"""Random schedules: drawn by Hypothesis, played on real brokers, and shrunk if they fail.

``pytest -m random_schedules --budget-s 1800 --seed 7`` plays examples for half an hour. ``--random-of FILE`` draws
schedules for the cluster, load and promises of that fault file. If the file has a schedule of its own, it is played
first.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.explore.scenarios import draw_scenarios, rescheduled, scenarios
from rabbitmq_resilience.explore.search import Search
from rabbitmq_resilience.runner.run import RunContext, run_scenario
from rabbitmq_resilience.scenario.validation import ValidatedScenario
from rabbitmq_resilience.sut.drivers import OpenDriver

pytestmark = pytest.mark.random_schedules

#: How many examples are drawn at once, at 20 ms each. A seed draws the same examples only for the same number.
EXAMPLES_AT_ONCE = 50
#: So that a session of the next seed does not draw what a long one of this seed has drawn.
SEEDS_APART = 1_000_003


@pytest.fixture
def from_seed(pytestconfig: pytest.Config) -> int:
    given: int | None = pytestconfig.getoption("--seed")
    return random.SystemRandom().randrange(2**31) if given is None else given


def test_random_schedules(  # noqa: PLR0917 - fixtures
    pytestconfig: pytest.Config,
    driver: OpenDriver,
    testbed: RunContext,
    net_ticktime_s: int,
    random_of: ValidatedScenario | None,
    from_seed: int,
    show: Callable[[str], None],
    summarised: Callable[[str], None],
    judged: Callable[[Verdict], None],
    undecided: Callable[[str], None],
) -> None:
    if random_of is not None:
        strategy = rescheduled(random_of, driver=testbed.driver)
    else:
        strategy = scenarios(version=driver.broker_version, driver=testbed.driver, net_ticktime_s=net_ticktime_s)

    def examples() -> Iterator[ValidatedScenario]:
        if random_of is not None and random_of.schedule:
            yield random_of
        for more in itertools.count():
            own = from_seed + more * SEEDS_APART
            yield from draw_scenarios(strategy, from_seed=own, count=EXAMPLES_AT_ONCE)

    if pytestconfig.getoption("--check-only"):
        assert len(list(itertools.islice(examples(), EXAMPLES_AT_ONCE))) == EXAMPLES_AT_ONCE
        pytest.skip(f"{EXAMPLES_AT_ONCE} examples checked, not played")
    in_passing = replace(testbed, judged=lambda _: None)  # runs while shrinking do not count as results of the night
    search = Search(
        from_seed,
        pytestconfig.getoption("--budget-s"),
        driver.broker_version,
        testbed.runs_root,
        lambda scenario, proxied: run_scenario(scenario, testbed, proxied=proxied),
        show,
        try_out=lambda scenario, proxied: run_scenario(scenario, in_passing, proxied=proxied),
    )
    try:
        found = search.run(examples())
    finally:
        summarised(search.summary())
        for verdict in search.verdicts:
            judged(verdict)
    if found is not None:
        pytest.fail(f"{found.text()}\n{found.result.story()}", pytrace=False)
    if search.all_unknown:
        undecided("no example came to a verdict; verdict.json in each run directory says why")
