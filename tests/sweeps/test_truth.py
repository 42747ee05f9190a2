"""What is said of simulated cells whose truth is known: by every sample that there can be, by every way to deal
the same numbers, and by noise as machines have it, with ties, drift, skew and runs that were not held."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rabbitmq_resilience.extensions.sweeps.compared_sides import of_axis
from rabbitmq_resilience.extensions.sweeps.comparison import ComparedSide, Comparison, Runs, compare, words_of
from rabbitmq_resilience.extensions.sweeps.leaderboard import ranking
from rabbitmq_resilience.extensions.sweeps.results import ResultRow, Results
from rabbitmq_resilience.extensions.sweeps.statistics import ALPHA, compared, median_interval, runs_needed, shift
from rabbitmq_resilience.extensions.sweeps.sweep_summary import rows
from rabbitmq_resilience.report.rate import Rate
from tests.sweeps.test_leaderboard import GOOD
from tests.sweeps.test_leaderboard import loaded as sizes
from tests.sweeps.test_leaderboard import run as run_of_size
from tests.sweeps.test_results import OF, line
from tests.sweeps.written import loaded, with_changes

#: Equally likely values, with a tie and a tail; the median of what they are drawn from is 2.
TIED, MEDIAN = (1.0, 2.0, 2.0, 40.0), 2.0


def most(tries: int, chance: float = ALPHA) -> float:
    """So many of the tries, where each comes by chance; a thousandth of all tests of this file see more."""
    return chance * tries + 3 * math.sqrt(tries * chance * (1 - chance))


def test_the_interval_of_a_median_holds_it_in_as_many_of_all_samples_as_it_says() -> None:
    for runs in (2, 4, 6):
        told = [median_interval(sample) for sample in itertools.product(TIED, repeat=runs)]
        held = sum(one.low <= MEDIAN <= one.high for one in told)
        assert held / len(told) >= told[0].level
    assert told[0].level >= 0.95


def test_the_interval_of_a_shift_holds_it_in_as_many_of_all_samples_as_it_says() -> None:
    values, by = (1.0, 2.0, 2.0, 7.0), 3.0
    samples = Counter(tuple(sorted(sample)) for sample in itertools.product(values, repeat=4))
    held = whole = 0
    for (first, count), (second, others) in itertools.product(samples.items(), repeat=2):
        told = shift(first, [value + by for value in second], "difference")
        assert told is not None and told.level >= 0.95
        held += count * others * (told.low <= by <= told.high)
        whole += count * others
    assert held / whole >= 0.95


def dealt(values: Sequence[Sequence[float]], runs: int) -> Iterator[Comparison]:
    """Two sides for each way to deal the same runs, each with a number of each measure, to them."""
    names = ("confirmed_per_s", "outage_s")
    for chosen in itertools.combinations(range(2 * runs), runs):
        others = [number for number in range(2 * runs) if number not in chosen]
        yield compare(
            *(
                ComparedSide(
                    name, {"c": Runs({m: [values[n][i] for i in mine] for n, m in enumerate(names)}, Rate(0, runs))}
                )
                for name, mine in (("A", chosen), ("B", others))
            )
        )


@pytest.mark.parametrize("seed", range(3))
def test_of_all_ways_to_deal_the_same_runs_at_most_one_in_twenty_says_a_word(seed: int) -> None:
    """The measures go together, as a busy minute makes them."""
    rng = np.random.default_rng(seed)
    first = rng.integers(1, [3, 8, 1000][seed], 10).astype(float)
    tables = list(dealt([first.tolist(), (1000 - first + rng.integers(0, 2, 10)).tolist()], 5))
    said = sum(found.counts["better"] + found.counts["worse"] > 0 for found in tables)
    assert len(tables) == 252
    assert said <= ALPHA * len(tables)


@pytest.mark.parametrize(("cells", "measures"), [(1, 1), (2, 1), (2, 3), (3, 2), (12, 4)])
def test_as_many_runs_as_are_asked_for_can_tell_a_difference(cells: int, measures: int) -> None:
    names = ("confirmed_per_s", "outage_s", "cpu_busy", "depth_max")[:measures]
    runs = runs_needed(ALPHA / words_of(cells, measures))

    def side(name: str, start: float, hits: int) -> ComparedSide:
        values = {measure: [start + number for number in range(runs)] for measure in names}
        return ComparedSide(name, {f"cell {number}": Runs(values, Rate(hits, runs)) for number in range(cells)})

    found = compare(side("A", 1.0, 0), side("B", 1000.0, runs))
    assert {one.word for one in found.differences if one.where} <= {"better", "worse"}


def drifting(
    rng: np.random.Generator, labels: Sequence[str], rounds: int, *, drift: float, lost: bool
) -> list[ResultRow]:
    """Cells that are all alike, on a machine that gets better from round to round and has ties and a tail. Where some
    are ``lost``, the first was not held in most of the late rounds, and the others in most of the early ones."""
    found = []
    for number in range(1, rounds + 1):
        for place, label in enumerate(labels):
            value = round(100 + drift * number + 5 * rng.exponential())
            late = number > rounds / 2
            is_lost = lost and rng.random() < (0.8 if (place == 0) == late else 0.1)
            fields = {"status": "not held", "values": {}} if is_lost else {"values": {"confirmed_per_s": float(value)}}
            found.append(replace(line(label, "quorum", number), **fields))
    return found


@pytest.mark.parametrize("drift", [0.0, 3.0])
@pytest.mark.parametrize("lost", [False, True], ids=["all_held", "some_not_held"])
def test_a_machine_that_changes_says_nothing_of_cells_that_are_alike(tmp_path: Path, drift: float, lost: bool) -> None:
    rng = np.random.default_rng(18)
    changes = (
        (("axes",), [{"field": "workload.in_flight", "values": [1, 10, 100]}]),
        (("measures",), ["confirmed_per_s"]),
    )
    sweep = loaded(tmp_path, with_changes(*changes, (("compared",), "in_flight"), (("repeats",), 12)))
    tables, of_table, of_comparison, plain = 300, 0, 0, 0
    for _ in range(tables):
        lines = drifting(rng, ("1", "10", "100"), 12, drift=drift, lost=lost)
        lines = [replace(one, labels={"in_flight": one.labels["in_flight"]}) for one in lines]
        results = Results(tmp_path / "none", OF, lines)
        told = [row.by_measure["confirmed_per_s"] for row in rows(results, sweep)]
        of_table += sum(one.word in ("better", "worse") for one in told)
        found = of_axis(results, sweep.spec).values()
        of_comparison += any(one.word in ("better", "worse") for each in found for one in each.differences)
        by_all = [compared(told[0].values, one.values, scale="ratio", better="higher")[0] for one in told[1:]]
        plain += sum(word in ("better", "worse") for word in by_all)
    assert of_table <= most(2 * tables), "each word of a table is wrong in one of twenty at most"
    assert of_comparison <= most(tables), "and any word of all comparisons"
    if lost and drift:
        assert plain > 3 * ALPHA * 2 * tables, "which the numbers of all rounds are not: the machine would be blamed"


@pytest.mark.parametrize("runs", [4, 8])
def test_where_only_the_scatter_differs_a_word_is_wrong_in_one_of_eight_at_most(runs: int) -> None:
    """What the intervals of Hodges and Lehmann do not promise: that two settings of one median differ in nothing else.
    The worst that there is: one setting that never varies."""
    rng = np.random.default_rng(18)
    steady, tables = [100.0] * runs, 2000
    words = Counter(
        compared(steady, (100 + rng.normal(0, 30, runs)).tolist(), scale="difference", better="higher")[0]
        for _ in range(tables)
    )
    assert words["better"] + words["worse"] <= most(tables, 0.125)


def test_of_clusters_that_cost_the_same_none_is_dearer_in_nineteen_of_twenty_boards(tmp_path: Path) -> None:
    """Neighbours in the order are compared, and the order is that of the same numbers."""
    rng = np.random.default_rng(18)
    spec = sizes(tmp_path).spec
    per_node = {"3 small": 150, "5 small": 250, "3 large": 600}
    boards, said = 400, 0
    for _ in range(boards):
        lines = [
            run_of_size(name, GOOD, number, float(per_month * rng.lognormal(0, 0.2)))
            for name, per_month in per_node.items()
            for number in range(8)
        ]
        found = ranking(Results(tmp_path, OF, lines), spec)
        assert found is not None
        said += any(one.places[0].word == "worse" for one in found.candidates)
    assert said <= most(boards)


def test_a_difference_is_reported_also_where_the_machine_drifts(tmp_path: Path) -> None:
    rng = np.random.default_rng(18)
    axes = [{"field": "workload.in_flight", "values": [1, 10]}]
    sweep = loaded(tmp_path, with_changes((("axes",), axes), (("measures",), ["confirmed_per_s"])))
    lines = [
        replace(one, labels={"in_flight": one.labels["in_flight"]}, values={"confirmed_per_s": value * factor})
        for one in drifting(rng, ("1", "10"), 8, drift=3.0, lost=False)
        for factor in [2.0 if one.labels["in_flight"] == "10" else 1.0]
        for value in one.values.values()
        if value is not None
    ]
    _, second = rows(Results(tmp_path, OF, lines), sweep)
    assert second.by_measure["confirmed_per_s"].word == "better"


@pytest.mark.parametrize("noise", ["skewed", "some_never"])
def test_scenarios_of_which_one_side_has_more_runs_say_nothing_together_where_nothing_differs(noise: str) -> None:
    rng = np.random.default_rng(18)

    def drawn(runs: int) -> list[float]:
        values = [float(value) for value in rng.lognormal(0, 1.5, runs)]
        return [math.inf if noise == "some_never" and rng.random() < 0.3 else value for value in values]

    def side(name: str, runs: int) -> ComparedSide:
        return ComparedSide(name, {f"cell {n}": Runs({"recovered_s": drawn(runs)}, None) for n in range(100)})

    tables = 120
    told = [compare(side("A", 1), side("B", 2)) for _ in range(tables)]
    assert sum(one.word in ("better", "worse") for found in told for one in found.together) <= most(tables)


def test_promises_are_compared_in_the_rounds_in_which_both_came_to_a_verdict(tmp_path: Path) -> None:
    """A machine that went bad in the late rounds: one side breaks its promises there, the other cannot tell."""
    words = {"quorum": "INVALID", "mirrored": "UNKNOWN"}
    lines = [
        replace(line("1", queues, number), verdict=word if number > 8 else "VALID")
        for number in range(1, 21)
        for queues, word in words.items()
    ]
    spec = loaded(tmp_path, with_changes((("compared",), "queues"), (("repeats",), 20))).spec
    (found,) = of_axis(Results(tmp_path / "none", OF, lines), spec).values()
    assert [(one.first, one.second, one.word) for one in found.rates] == [
        (Rate(0, 8), Rate(0, 8), "no difference seen")
    ]
