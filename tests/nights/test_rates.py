"""Whether a known violation comes more often is held to every way in which its hits could have been dealt, and to
nights that were drawn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.extensions.nights.night_file import Night
from rabbitmq_resilience.extensions.nights.rates import NightOutcome, Where, chance, change, known_rates
from rabbitmq_resilience.report.rate import Rate
from tests.nights.literal import HEADER, PLAYED

SERIES, NIGHTS = 300, 30


def runs(text: str, scenario: str = "s", night: int = 0) -> list[NightOutcome]:
    """``"x.x"``: three runs in one night each, of which the first and the last were hits."""
    return [NightOutcome(f"2026-{night + i:05}", scenario, hit=mark == "x") for i, mark in enumerate(text)]


def dealt(before: Sequence[NightOutcome], after: Sequence[NightOutcome]) -> Iterator[int]:
    """How many hits fall on ``after`` in each way to deal them, scenario by scenario: slow and obvious."""
    ways = []
    for scenario in sorted({run.scenario for run in [*before, *after]}):
        hits = [run.hit for run in [*before, *after] if run.scenario == scenario]
        late = sum(run.scenario == scenario for run in after)
        ways.append([sum(hits[i] for i in chosen) for chosen in itertools.combinations(range(len(hits)), late)])
    yield from map(sum, itertools.product(*ways))


RUNS = st.lists(st.builds(NightOutcome, st.just("n"), st.sampled_from("ab"), st.booleans()), min_size=1, max_size=5)


@given(RUNS, RUNS)
def test_chance_is_that_of_all_ways_to_deal_the_hits(before: list[NightOutcome], after: list[NightOutcome]) -> None:
    ways = list(dealt(before, after))
    seen = sum(run.hit for run in after)
    less, more = (sum(way <= seen for way in ways), sum(way >= seen for way in ways))
    assert chance(before, after) == pytest.approx(min(1.0, 2 * min(less, more) / len(ways)))


def test_one_of_ten_that_becomes_six_of_ten() -> None:
    """By Fisher's test of 4 of 40 and 12 of 20: 0.00008 on both sides."""
    before = ".........x" * 4
    found = change(runs(before + "xx.x.xx.x." * 2))
    assert found is not None
    assert found.is_more
    assert found.after.runs - 20 in range(-2, 3), "about where it changed"
    assert found.before.interval[1] < found.after.interval[0]


def test_what_goes_away_is_reported_too() -> None:
    found = change(runs("xx.x.xx.xx" * 3 + "." * 20))
    assert found is not None
    assert not found.is_more
    assert found.after == Rate(0, found.after.runs)


def test_a_few_runs_tell_nothing() -> None:
    assert change([]) is None
    assert change(runs("....xxxx")) is None
    assert change([replace(run, night="the same") for run in runs("." * 30 + "x" * 30)]) is None


def test_nights_of_other_scenarios_are_no_change() -> None:
    """One scenario always shows it, the other one hardly ever: which of them is played decides, and nothing changed."""
    often, seldom = runs("x" * 40, "often"), runs("." * 39 + "x", "seldom", night=40)
    assert change([*seldom[-1:], *often, *seldom[:-1]]) is None
    mixed = [replace(run, scenario="s") for run in [*often, *seldom]]
    assert change(mixed) is not None


def drawn(rng: np.random.Generator, rates: Sequence[float], *, scenarios: int) -> list[NightOutcome]:
    """A night each of ``rates``, in which some of the scenarios are played."""
    return [
        NightOutcome(f"2026-{night:05}", f"s{scenario}", hit=bool(rng.random() < rate))
        for night, rate in enumerate(rates)
        for scenario in rng.permutation(scenarios)[: max(1, scenarios // 2)]
    ]


def told_in(series: list[NightOutcome], *, from_night: int, looks: int = 1) -> int | None:
    """After which night a change is told first, where somebody looks after each night."""
    nights = sorted({run.night for run in series})
    for number, night in enumerate(nights[from_night:], from_night):
        if change([run for run in series if run.night <= night], looks=looks) is not None:
            return number
    return None


@pytest.mark.parametrize(
    ("rate", "scenarios"),
    [
        (0.1, 1),
        (0.5, 1),
        pytest.param(0.5, 4, marks=pytest.mark.generated),
        pytest.param(0.6, 8, marks=pytest.mark.generated),
    ],
)
def test_false_alarms_come_in_at_most_one_of_a_hundred_series_of_nights(rate: float, scenarios: int) -> None:
    rng = np.random.default_rng(7)
    alarms = [told_in(drawn(rng, [rate] * NIGHTS, scenarios=scenarios), from_night=0) for _ in range(SERIES)]
    assert sum(alarm is not None for alarm in alarms) <= SERIES / 100


@pytest.mark.parametrize(
    ("before", "after", "scenarios", "within_nights"),
    [(0.1, 0.6, 8, 10), (0.6, 0.1, 8, 10), (0.1, 0.6, 1, 60), (0.6, 0.1, 1, 60)],
)
def test_a_change_is_reported(before: float, after: float, scenarios: int, within_nights: int) -> None:
    """Of nights that play four of eight scenarios that show it, and of those that play one."""
    rng = np.random.default_rng(11)
    rates = [before] * NIGHTS + [after] * within_nights
    told = [told_in(drawn(rng, rates, scenarios=scenarios), from_night=NIGHTS) for _ in range(100)]
    assert sum(one is not None for one in told) >= 80


def test_only_what_is_the_same_is_compared() -> None:
    """Another machine, another version, and what could not be told are no runs of that rate; nor are scenarios that
    have never shown it."""
    hit = replace(PLAYED, verdict="INVALID", known="#1")
    other, unknown = replace(PLAYED, scenario="other"), replace(PLAYED, verdict="UNKNOWN", as_expected=False)
    newer = replace(PLAYED, broker_version="4.0.5")
    away = replace(HEADER, night="2026-11-23T01:00:00Z", machine=replace(HEADER.machine, id="elsewhere"))
    nights = [
        Night(Path("1"), HEADER, [hit, PLAYED, other, unknown, newer], [], None),
        Night(Path("2"), away, [PLAYED, replace(hit, known="#2")], [], None),
    ]
    first, second = known_rates(nights)
    assert (first.known, first.where, first.overall) == ("#1", Where("3.10.8", "local", "0123abcd"), Rate(1, 2))
    assert (second.known, second.where.machine, second.overall) == ("#2", "elsewhere", Rate(1, 2))
    assert first.of_night(HEADER.night) == Rate(1, 2)
    assert first.of_night(away.night) is None
