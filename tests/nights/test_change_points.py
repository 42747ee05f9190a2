"""Change points against a second way to them: every cut tried in plain Python, and shuffles of a plain generator."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean, median

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.change_points import noises
from rabbitmq_resilience.extensions.nights.change_points import (
    BOUND,
    LEVEL,
    NIGHTS_MIN,
    SIDE_NIGHTS_MIN,
    ChangePoint,
    NoLibraryError,
    bounded_distances,
    change_points,
    noise,
)
from rabbitmq_resilience.tools import extras
from tests.messages import Messages

SHUFFLES = 4000
#: What the first way decides by 9,999 shuffles and this one by fewer may differ between these.
CLOSE = (LEVEL / 4, LEVEL * 3)


def bounded(values: Sequence[float]) -> list[float]:
    middle = median(values)
    apart = [0.0 if value == middle else value - middle for value in values]
    usual = median(map(abs, apart)) * 1.4826
    if usual in {0, inf}:
        usual = fmean(abs(one) for one in apart if one not in {inf, -inf}) or 1.0
    return [max(-BOUND, min(BOUND, one / usual)) for one in apart]


def squared(part: Sequence[float]) -> float:
    mean = fmean(part)
    return sum((value - mean) ** 2 for value in part)


def left_after(values: Sequence[float], cut: int) -> float:
    return squared(values[:cut]) + squared(values[cut:])


def best(values: Sequence[float]) -> float:
    """The least squared distance that a cut leaves, with sums that grow from night to night."""
    whole, n, total, least = sum(values), len(values), 0.0, float("inf")
    squares = sum(value * value for value in values)
    for cut in range(1, n):
        total += values[cut - 1]
        if SIDE_NIGHTS_MIN <= cut <= n - SIDE_NIGHTS_MIN:
            least = min(least, squares - total**2 / cut - (whole - total) ** 2 / (n - cut))
    return least


def slow_p(values: Sequence[float], random: Random) -> float:
    series = bounded(values)
    reached = best(series) + 1e-9
    drawn = list(series)
    as_good = 0
    for _ in range(SHUFFLES):
        random.shuffle(drawn)
        as_good += best(drawn) <= reached
    return (1 + as_good) / (1 + SHUFFLES)


def stepped(seed: int) -> list[float]:
    """20 to 36 nights of some noise, with a step of some height somewhere, or of none."""
    random = np.random.default_rng(seed)
    kinds = list(noises().values())
    values = kinds[seed % len(kinds)](random, int(random.integers(20, 31)))
    values[random.integers(5, len(values) - 4) :] *= 1 + random.choice([0, 0.3, 0.5, 1.0])
    return [float(value) for value in values]


@pytest.mark.parametrize("seed", range(36))
def test_both_ways_find_the_same_change_or_none(seed: int) -> None:
    values = stepped(seed)
    found, p = change_points(values), slow_p(values, Random(seed))  # noqa: S311 - not for secrets
    if not CLOSE[0] <= p <= CLOSE[1]:
        assert bool(found) == (p < LEVEL)
    if len(found) == 1:
        series, cuts = bounded(values), range(SIDE_NIGHTS_MIN, len(values) - SIDE_NIGHTS_MIN + 1)
        assert left_after(series, found[0].first) == pytest.approx(min(left_after(series, cut) for cut in cuts))


def test_both_decide_both_ways() -> None:
    found = [bool(change_points(stepped(seed))) for seed in range(36)]
    assert 5 < sum(found) < 31


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([1.0, inf]), min_size=NIGHTS_MIN, max_size=40))
@example([0.0] * 7 + [1.0] * 6 + [2.225073858507e-311])
@example([5.0] * 8 + [6.0] * 6 + [inf])
@example([5.0] * 7 + [inf] * 7)
@example([5.0] * 6 + [inf] * 9)
def test_values_are_bounded_as_in_plain_python(values: list[float]) -> None:
    series = bounded_distances(np.array(values))
    if series is None:
        assert len(set(values)) == 1
    else:
        assert series.tolist() == pytest.approx(bounded(values))


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0]), max_size=30))
def test_the_same_values_give_the_same_answer(values: list[float]) -> None:
    assert change_points(values) == change_points(values)


def test_too_few_nights_show_nothing_and_one_more_does() -> None:
    values = [10.0, 10.1, 9.9, 10.2, 9.8, 10.05, 9.95, 15, 15.1, 14.9, 15.2, 14.8, 15.05, 15.15]
    assert change_points(values[:-1]) == []
    (change,) = change_points(values)
    assert (change.first, round(change.before), round(change.after)) == (7, 10, 15)
    assert change.p <= LEVEL
    assert change.ratio == pytest.approx(1.5, abs=0.02)


def test_a_small_change_is_found_next_to_a_recovery_that_never_came() -> None:
    (change,) = change_points([5.0] * 16 + [6.0] * 14 + [inf])
    assert (change.first, change.before, change.after) == (16, 5, 6)


def test_a_constant_series_and_one_bad_night_show_nothing() -> None:
    assert change_points([7.0] * 30) == []
    assert change_points([*[7.0] * 25, 70.0, *[7.0] * 4]) == []


def test_two_steps_are_two_changes() -> None:
    wobble = [0.1 * (i % 3) for i in range(42)]
    values = [10 + w for w in wobble[:14]] + [14 + w for w in wobble[14:28]] + [11 + w for w in wobble[28:]]
    assert [change.first for change in change_points(values)] == [14, 28]


def test_noise_is_reported_without_the_steps() -> None:
    values = [10.0, 11.0, 9.0, 10.0, 20.0, 22.0, 18.0, 20.0]
    change = ChangePoint(4, 10, 20, 0.001)
    assert noise(values, [change]) == pytest.approx(0.1 * 1.4826 / 2)
    assert noise([0.0] * 5, []) is None


def test_without_the_library_one_sentence_says_how_to_have_it(
    monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    monkeypatch.setattr(extras, "installed_from", lambda: (Path("/home/you/suite"), False))
    with message.of(NoLibraryError) as refused:
        change_points([0.0, 1.0] * 10)
    assert "pip install '/home/you/suite[trend]'" in str(refused.value)
