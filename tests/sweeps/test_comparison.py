"""Words about two sides: against an obvious way, against noise without a difference, and in what they must not hide."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.extensions.sweeps.compared_sides import of_axis
from rabbitmq_resilience.extensions.sweeps.comparison import ComparedSide, Comparison, Runs, compare
from rabbitmq_resilience.extensions.sweeps.comparison_page import comparison_markdown, comparison_page
from rabbitmq_resilience.extensions.sweeps.measures import MEASURES
from rabbitmq_resilience.extensions.sweeps.results import ResultRow, Results
from rabbitmq_resilience.report.rate import Rate
from tests.messages import Messages
from tests.sweeps.written import SWEEP, loaded
from tests.tables.lines import line_with

NUMBERS = st.lists(st.integers(0, 12).map(float) | st.just(math.inf), min_size=0, max_size=5)
NAMES = ("confirmed_per_s", "outage_s")


@st.composite
def sides(draw: st.DrawFn) -> tuple[ComparedSide, ComparedSide]:
    def runs() -> Runs:
        count = draw(st.integers(0, 6))
        broke = Rate(draw(st.integers(0, count)), count) if count else None
        return Runs({name: draw(NUMBERS) for name in NAMES}, broke)

    cells = [f"cell {number}" for number in range(draw(st.integers(1, 7)))]
    return tuple(ComparedSide(name, {cell: runs() for cell in cells if draw(st.integers(0, 9))}) for name in "AB")  # type: ignore[return-value]


def places(m: int, n: int) -> int:
    return math.comb(m + n, m)


def slow_chance(a: list[float], b: list[float]) -> float:
    """Of a rank test, two-sided: in how many of all ways to deal the same numbers to the sides are they as unequal."""
    every = [*a, *b]

    def larger(mine: list[float], others: list[float]) -> float:
        return sum((x > y) - (x < y) for x in mine for y in others)

    seen = abs(larger(a, b))
    dealt = [
        abs(larger([every[i] for i in chosen], [every[i] for i in range(len(every)) if i not in chosen]))
        for chosen in itertools.combinations(range(len(every)), len(a))
    ]
    return sum(unequal >= seen for unequal in dealt) / len(dealt)


@given(both=sides())
def test_a_word_about_a_cell_is_one_that_a_rank_test_of_all_dealings_gives_too(
    both: tuple[ComparedSide, ComparedSide],
) -> None:
    found = compare(*both)
    for one in found.differences:
        if not one.where or one.word not in ("better", "worse"):
            continue
        a, b = (list(side.runs[one.where].values[one.measure]) for side in both)
        assert slow_chance(a, b) <= found.alpha
        higher = sum((y > x) - (y < x) for x in a for y in b) > 0
        assert (one.word == "better") == (higher == (MEASURES[one.measure].better == "higher"))


@given(both=sides())
def test_nothing_that_both_have_is_left_out_and_the_other_way_round_is_the_other_word(
    both: tuple[ComparedSide, ComparedSide],
) -> None:
    found, back = compare(*both), compare(both[1], both[0])
    wheres = {where for where in both[0].runs if where in both[1].runs}
    expected = {
        (where, name)
        for where in wheres
        for name in NAMES
        if both[0].runs[where].values[name] and both[1].runs[where].values[name]
    }
    assert {(one.where, one.measure) for one in found.differences if one.where} == expected
    other = {"better": "worse", "worse": "better"}
    for one, two in zip(found.differences, back.differences, strict=True):
        assert two.word == other.get(one.word, one.word)
    for mine, theirs in zip(found.rates, back.rates, strict=True):
        assert theirs.word == other.get(mine.word, mine.word)


@given(both=sides())
def test_what_only_one_side_has_stands_on_both_pages(both: tuple[ComparedSide, ComparedSide]) -> None:
    found = compare(*both)
    for page in (comparison_markdown(found, title="t"), comparison_page(found, title="t")):
        assert all(where in page for where in (only for names in found.only.values() for only in names))


def noisy(rng: np.random.Generator, cells: int, runs: int, *, factor: float = 1.0, broken: float = 0.3) -> ComparedSide:
    def one(number: int) -> Runs:
        level = 100.0 * (number + 1)
        values = {
            "confirmed_per_s": (factor * rng.normal(level, 0.05 * level, runs)).tolist(),
            "confirm_p99_ms": rng.lognormal(3, 0.5, runs).tolist(),
            "outage_s": rng.choice([0.0, 0.0, 1.5, 4.0], runs).tolist(),
        }
        return Runs(values, Rate(int(rng.binomial(runs, broken)), runs))

    return ComparedSide("noise", {f"cell {number}": one(number) for number in range(cells)})


def words(found: Comparison) -> list[str]:
    return [*(one.word for one in found.differences), *(one.word for one in found.rates)]


@pytest.mark.parametrize(("cells", "runs"), [(1, 6), (3, 8), (12, 1), (10, 4)])
def test_where_nothing_differs_at_most_one_table_of_twenty_says_a_word(cells: int, runs: int) -> None:
    rng = np.random.default_rng(18)
    tables = 400
    false = sum(
        bool({"better", "worse"} & set(words(compare(noisy(rng, cells, runs), noisy(rng, cells, runs)))))
        for _ in range(tables)
    )
    assert false <= 0.05 * tables


def test_a_difference_in_every_cell_is_reported_though_each_was_played_once() -> None:
    rng = np.random.default_rng(18)
    found = compare(noisy(rng, 12, 1), noisy(rng, 12, 1, factor=0.7))
    (one,) = (one for one in found.together if one.measure == "confirmed_per_s")
    assert (one.word, one.scale) == ("worse", "ratio")
    assert one.apart is not None and one.apart.low < 0.7 < one.apart.high
    assert {d.word for d in found.differences if d.where} == {"too few runs"}


def test_what_never_came_is_no_reason_to_be_better() -> None:
    """A cell that recovers quickly, or not at all, has not become faster."""
    slow = [4.0, 4.1, 4.2, 4.3, 4.4, 4.5, 4.6]
    quick = [1.0, 1.1, 1.2, math.inf, math.inf, math.inf, math.inf]
    one, other = (
        ComparedSide(name, {"cell": Runs({"recovered_s": v}, None)}) for name, v in (("A", slow), ("B", quick))
    )
    (found,) = compare(one, other).differences
    assert found.word != "better"
    assert found.second.middle == math.inf
    assert " never " in comparison_markdown(compare(one, other), title="t")


def test_promises_that_are_broken_more_often_are_reported_together() -> None:
    names = [f"cell {number}" for number in range(12)]
    kept, broken = ({name: Runs({}, Rate(hits, 1)) for name in names} for hits in (0, 1))
    found = compare(ComparedSide("A", kept), ComparedSide("B", broken))
    assert (found.rates[0].where, found.rates[0].word) == ("", "worse")
    assert {one.word for one in found.rates[1:]} == {"too few runs"}


def test_a_few_runs_together_are_too_few() -> None:
    """Two cells, each played once on both sides: not even all against none would show a difference."""
    kept, broken = ({name: Runs({}, Rate(hits, 1)) for name in ("one", "other")} for hits in (0, 1))
    found = compare(ComparedSide("A", kept), ComparedSide("B", broken))
    assert {one.word for one in found.rates} == {"too few runs"}


def test_a_side_that_played_the_bad_cell_more_often_is_not_worse() -> None:
    often = {"good": Runs({}, Rate(0, 2)), "bad": Runs({}, Rate(40, 40))}
    seldom = {"good": Runs({}, Rate(0, 40)), "bad": Runs({}, Rate(2, 2))}
    assert {one.word for one in compare(ComparedSide("A", seldom), ComparedSide("B", often)).rates} == {
        "no difference seen"
    }


def test_runs_without_numbers_and_what_only_one_side_has_are_reported(message: Messages) -> None:
    runs = Runs({"outage_s": [1.0]}, Rate(0, 1), left_out=3)
    found = compare(
        ComparedSide("A", {"x": runs, "old": runs}),
        ComparedSide("B", {"x": Runs({"outage_s": [1.0]}, None), "new": runs}),
    )
    text = comparison_markdown(found, title="t")
    assert "- x: 3 of A, 0 of B" in text
    assert found.only == {"A": ["old"], "B": ["new"]}
    for name in ("A: old", "B: new"):
        message(line_with(text, name))
    assert found.rates == []


@pytest.mark.parametrize(("field", "is_compared"), [("workload.rate_per_s", False), ("workload.in_flight", True)])
def test_messages_a_second_of_loads_that_state_other_rates_are_not_compared(
    field: str, is_compared: bool, tmp_path: Path
) -> None:
    axis = {"name": "load", "field": field, "values": [300, 1000]}
    sweep = loaded(tmp_path, SWEEP | {"axes": [axis], "compared": "load", "repeats": 8})
    lines = [
        ResultRow(
            round=number,
            labels={"load": label},
            status="measured",
            verdict="VALID",
            why="",
            values={"confirmed_per_s": float(label) - number / 10, "confirm_p99_ms": 5.0 + number / 10},
            run="x",
            seed=1,
            took_s=1.0,
            at="",
        )
        for number in range(8)
        for label in ("300", "1000")
    ]
    (found,) = of_axis(Results(tmp_path, None, lines), sweep.spec).values()
    compared_measures = {one.measure for one in found.differences}
    assert ("confirmed_per_s" in compared_measures) is is_compared
    assert "confirm_p99_ms" in compared_measures


def test_a_broken_promise_next_to_an_unknown_run_is_not_compared_and_yet_shown(tmp_path: Path) -> None:
    axis = {"name": "load", "field": "workload.in_flight", "values": [300, 1000]}
    sweep = loaded(tmp_path, SWEEP | {"axes": [axis], "compared": "load", "repeats": 8})
    verdicts = {"300": [*["VALID"] * 7, "UNKNOWN"], "1000": [*["VALID"] * 7, "INVALID"]}
    lines = [
        ResultRow(
            round=number,
            labels={"load": label},
            status="measured",
            verdict=verdict,
            why="",
            values={},
            run="x",
            seed=1,
            took_s=1.0,
            at="",
        )
        for label, mine in verdicts.items()
        for number, verdict in enumerate(mine)
    ]
    (found,) = of_axis(Results(tmp_path, None, lines), sweep.spec).values()
    assert [(one.first.hits, one.first.runs, one.second.hits, one.second.runs) for one in found.rates] == [(0, 7, 0, 7)]
    assert list(found.unpaired.values()) == [(0, 1)]
    for text in (comparison_markdown(found, title="x"), comparison_page(found, title="x")):
        assert "0 of 300, 1 of 1000" in text
