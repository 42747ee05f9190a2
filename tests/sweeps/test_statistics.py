"""Intervals against slow and obvious ways, and against noise whose truth is known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.extensions.sweeps.statistics import (
    compared,
    median_interval,
    middle_shift,
    rates_chance,
    runs_needed,
    shift,
)

VALUES = st.lists(st.integers(1, 40).map(float), min_size=1, max_size=7)


def slow_shift(first: list[float], second: list[float], alpha: Fraction) -> tuple[float, float] | None:
    """By enumeration of every order that the values of two settings without a difference may have."""
    m, n = len(first), len(second)
    places = list(itertools.combinations(range(m + n), m))
    larger = [sum(1 for a in mine for b in range(m + n) if b not in mine and a > b) for mine in places]
    fits = [k for k in range(1, m * n + 1) if 2 * sum(u < k for u in larger) <= alpha * len(places)]
    if not fits:
        return None
    apart = sorted(b - a for a in first for b in second)
    return apart[fits[-1] - 1], apart[m * n - fits[-1]]


@given(
    first=VALUES.filter(lambda v: len(v) < 6), second=VALUES.filter(lambda v: len(v) < 6), per_cent=st.integers(1, 60)
)
def test_the_interval_between_two_is_that_of_every_order(
    first: list[float], second: list[float], per_cent: int
) -> None:
    told = shift(first, second, "difference", alpha=per_cent / 100)
    slow = slow_shift(first, second, Fraction(per_cent / 100))
    assert (told and (told.low, told.high)) == slow


@given(values=VALUES, per_cent=st.integers(1, 60))
def test_the_interval_of_a_median_is_that_of_every_toss(values: list[float], per_cent: int) -> None:
    n = len(values)
    heads = [sum(tosses) for tosses in itertools.product((0, 1), repeat=n)]
    outside = {k: 2 * sum(h < k for h in heads) / len(heads) for k in range(1, (n + 1) // 2 + 1)}
    fits = [k for k, ratio in outside.items() if ratio <= per_cent / 100]
    k = max(fits, default=1)
    told = median_interval(values, alpha=per_cent / 100)
    assert (told.low, told.high) == (sorted(values)[k - 1], sorted(values)[n - k])
    assert told.level == pytest.approx(max(0, 1 - outside[k]))
    assert told.middle == float(np.median(values))


def test_four_runs_of_each_can_tell_a_difference_and_three_cannot() -> None:
    assert runs_needed() == 4
    assert compared([1.0] * 3, [9.0] * 3, scale="ratio", better="higher")[0] == "too few runs"
    assert compared([1.0, 2, 3, 4], [5.0, 6, 7, 8], scale="ratio", better="higher")[0] == "better"
    assert compared([1.0, 2, 3, 4], [5.0, 6, 7, 8], scale="ratio", better="lower")[0] == "worse"
    assert compared([1.0, 2, 3, 5], [4.0, 6, 7, 8], scale="ratio", better="lower")[0] == "no difference seen"


def test_what_may_be_nothing_is_compared_by_difference() -> None:
    word, told = compared([0.0] * 4, [2.0] * 4, scale="ratio", better="lower")
    assert (word, told and told.low) == ("worse", 2.0)
    assert compared([0.0] * 4, [0.0] * 4, scale="ratio", better="lower")[0] == "no difference seen"


def test_what_never_came_is_longer_than_all_and_as_long_as_itself() -> None:
    never = [math.inf] * 4
    assert compared([1.0, 2, 3, 4], never, scale="ratio", better="lower")[0] == "worse"
    assert compared(never, [1.0, 2, 3, 4], scale="ratio", better="lower")[0] == "better"
    assert compared(never, never, scale="difference", better="lower")[0] == "no difference seen"
    assert compared([0.0, 2, 3, math.inf], never, scale="ratio", better="lower")[0] == "no difference seen"
    assert median_interval([1.0, 2, math.inf]).middle == 2
    assert median_interval([1.0, math.inf, math.inf]).middle == math.inf
    assert median_interval([2.0, math.inf]).middle == math.inf, "half of them never came"
    told = compared([1.0, 1.0, math.inf, math.inf], [1.0, 1.0, math.inf, math.inf], scale="difference", better="lower")
    assert told[0] == "no difference seen"
    assert told[1] is not None
    assert told[1].middle == 0


@pytest.mark.parametrize(
    ("shifts", "scale", "middle"),
    [
        ([0.0, 0.0, 1.5, 1.5], "ratio", 1.5),
        ([0.5, math.inf], "ratio", 0.5),
        ([0.0, math.inf], "ratio", 1.0),
        ([0.0, 0.0, math.inf], "ratio", 0.0),
        ([0.0, 2.0], "difference", 1.0),
        ([-math.inf, 2.0], "difference", 2.0),
        ([-math.inf, -math.inf, math.inf, math.inf], "difference", 0.0),
        ([2.0, math.inf, math.inf], "difference", math.inf),
    ],
)
def test_the_middle_of_shifts_without_an_end_is_the_one_that_has_one(
    shifts: list[float], scale: Any, middle: float
) -> None:
    """A ratio of 0 has none: it comes from what never came."""
    assert middle_shift(shifts, scale) == middle
    if scale == "ratio":
        assert middle_shift(sorted(1 / one if one else math.inf for one in shifts), scale) == pytest.approx(
            1 / middle if middle else math.inf
        )


@given(runs=st.tuples(st.integers(1, 7), st.integers(1, 7)), data=st.data())
def test_the_chance_of_two_rates_is_that_of_every_dealing(runs: tuple[int, int], data: st.DataObject) -> None:
    hits = [data.draw(st.integers(0, n)) for n in runs]
    every = [sum(place < runs[0] for place in dealt) for dealt in itertools.combinations(range(sum(runs)), sum(hits))]
    ways = {x: every.count(x) for x in every}
    as_unequal = sum(count for count in ways.values() if count <= ways[hits[0]])
    assert rates_chance((hits[0], runs[0]), (hits[1], runs[1])) == pytest.approx(as_unequal / len(every))


@given(first=VALUES, second=VALUES)
def test_the_other_way_round_is_the_other_word(first: list[float], second: list[float]) -> None:
    other = {"better": "worse", "worse": "better"}
    word, _ = compared(first, second, scale="ratio", better="higher")
    assert compared(second, first, scale="ratio", better="higher")[0] == other.get(word, word)


@pytest.mark.parametrize("runs", [4, 6])
@pytest.mark.parametrize("noise", ["normal", "lognormal", "heavy", "rounded"])
def test_where_there_is_no_difference_one_is_found_in_one_of_twenty_at_most(noise: str, runs: int) -> None:
    rng = np.random.default_rng(18)
    draws: dict[str, Callable[[], np.ndarray]] = {
        "normal": lambda: rng.normal(1000, 50, runs),
        "lognormal": lambda: rng.lognormal(3, 0.5, runs),
        "heavy": lambda: 100 + np.abs(rng.standard_cauchy(runs)),
        "rounded": lambda: rng.integers(1, 4, runs).astype(float),
    }
    draw = draws[noise]
    words = [compared(draw().tolist(), draw().tolist(), scale="ratio", better="higher")[0] for _ in range(2000)]
    told = sum(word in ("better", "worse") for word in words)
    assert told <= 0.05 * 2000 + 3 * (2000 * 0.05 * 0.95) ** 0.5
    assert words.count("better") <= 0.05 * 2000


def test_a_difference_far_above_the_noise_is_reported() -> None:
    rng = np.random.default_rng(18)
    pairs = [(rng.normal(1000, 50, 4).tolist(), rng.normal(1500, 50, 4).tolist()) for _ in range(200)]
    assert all(compared(a, b, scale="ratio", better="higher")[0] == "better" for a, b in pairs)
