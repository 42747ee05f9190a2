"""Schedules that nobody thought of: drawn by Hypothesis, played on real brokers, and shrunk where they fail.

``pytest -m random_schedules --budget-s 1800 --seed 7`` plays examples for half an hour; ``--random-of FILE`` draws
schedules for the cluster, load and promises of that fault file, whose own schedule, if it has one, is played first.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import pytest

from faults import fault_file
from faults.scenario import Scenario
from reports.terminal import story
from suites.drawn_scenarios import draw_scenarios, rescheduled, scenarios
from suites.scenario import Bench, run_scenario
from suites.search import Search
from topologies.drivers import Opened

pytestmark = pytest.mark.random_schedules

#: Drawing takes 20 ms each. The seed draws the same ones for the same number only.
EXAMPLES_AT_ONCE = 50


@pytest.fixture
def from_seed(pytestconfig: pytest.Config) -> int:
    given: int | None = pytestconfig.getoption("--seed")
    return random.SystemRandom().randrange(2**31) if given is None else given


def test_random_schedules(  # noqa: PLR0917 - fixtures
    pytestconfig: pytest.Config,
    driver: Opened,
    bench: Bench,
    net_ticktime_s: int,
    random_of: Scenario | None,
    from_seed: int,
    tell: Callable[[str], None],
    summarised: Callable[[str], None],
) -> None:
    if random_of is not None:
        strategy = rescheduled(random_of, driver=bench.driver)
    else:
        strategy = scenarios(version=driver.broker_version, driver=bench.driver, net_ticktime_s=net_ticktime_s)

    def examples() -> Iterator[Scenario]:
        if random_of is not None and random_of.schedule:
            yield random_of
        for more in itertools.count():
            yield from draw_scenarios(strategy, from_seed=from_seed + more, count=EXAMPLES_AT_ONCE)

    if pytestconfig.getoption("--check-only"):
        for scenario in itertools.islice(examples(), EXAMPLES_AT_ONCE):
            fault_file.parse(fault_file.dump(scenario), source=scenario.title, driver=bench.driver)
        pytest.skip(f"{EXAMPLES_AT_ONCE} examples checked, not played")
    search = Search(
        from_seed,
        pytestconfig.getoption("--budget-s"),
        driver.broker_version,
        bench.runs_root,
        lambda scenario, proxied: run_scenario(scenario, bench, proxied=proxied),
        tell,
    )
    try:
        found = search.run(examples())
    finally:
        summarised(search.summary())
    if found is not None:
        pytest.fail(f"{found.told()}\n{story(found.result.document, found.result.run.path)}", pytrace=False)
    if search.told_nothing:
        pytest.fail("no example came to a verdict; verdict.json in each run directory says why", pytrace=False)
