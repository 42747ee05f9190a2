"""Who costs least, held to arithmetic by hand; who drops out; and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.extensions.sweeps.leaderboard import Ranking, ranking
from rabbitmq_resilience.extensions.sweeps.prices import Leaderboard
from rabbitmq_resilience.extensions.sweeps.results import ResultRow, Results
from rabbitmq_resilience.extensions.sweeps.sweep_file import Sweep, SweepFileError, load
from rabbitmq_resilience.extensions.sweeps.sweep_page import write_page
from rabbitmq_resilience.extensions.sweeps.table import table
from tests.messages import Messages
from tests.sweeps.test_results import OF, line
from tests.sweeps.written import BASE
from tests.tables.lines import line_with

PRICES: dict[str, Any] = {
    "currency": "USD",
    "source": "a list",
    "nodes": {
        "small": {"cores": 2, "memory_gb": 8, "per_month": 50},
        "large": {"cores": 8, "memory_gb": 32, "per_month": 200},
    },
}
SWEEP: dict[str, Any] = {
    "version": 1,
    "title": "Sizes",
    "base": {**BASE, "schedule": []},
    "axes": [
        {
            "name": "cluster",
            "settings": {
                "3 small": {"topology.zones": {"a": 1, "b": 1, "c": 1}},
                "5 small": {"topology.zones": {"a": 2, "b": 2, "c": 1}},
                "3 large": {"topology.zones": {"a": 1, "b": 1, "c": 1}},
            },
        },
        {
            "name": "conditions",
            "settings": {
                "good": {},
                "a broker is killed": {"schedule": [{"at_s": 1, "for_s": 5, "fault": "kill", "node": "a1"}]},
            },
        },
    ],
    "measures": ["confirmed_per_s", "confirm_p99_ms"],
    "leaderboard": {
        "axis": "cluster",
        "prices": PRICES,
        "scale": 0.25,
        "clusters": {
            "3 small": {"node": "small", "count": 3},
            "5 small": {"node": "small", "count": 5},
            "3 large": {"node": "large", "count": 3},
        },
        "demands": {"confirm_p99_ms": 100},
    },
}
GOOD, KILLED = "good", "a broker is killed"


def loaded(folder: Path, **changes: Any) -> Sweep:
    path = folder / "sizes.sweep.yaml"
    path.write_text(yaml.safe_dump({**SWEEP, **changes}, sort_keys=False))
    return load(path, driver="docker")


def run(cluster: str, conditions: str, number: int, rate: float, **told: Any) -> ResultRow:
    values = {"confirmed_per_s": rate, "confirm_p99_ms": told.pop("p99", 10.0)}
    fields = {"labels": {"cluster": cluster, "conditions": conditions}, "values": values, **told}
    return replace(line("1", "quorum", number), **fields)


def ranked(folder: Path, *lines: ResultRow) -> Ranking:
    found = ranking(Results(folder, OF, list(lines)), loaded(folder).spec)
    assert found is not None
    return found


def places(found: Ranking, condition: str) -> dict[str, tuple[int | None, str]]:
    at = found.conditions.index(f"conditions {condition}")
    return {one.name: (one.places[at].rank, one.places[at].out) for one in found.candidates}


def out_of(found: Ranking, condition: str) -> dict[str, str]:
    """Return why clusters have no place."""
    return {name: out for name, (rank, out) in places(found, condition).items() if rank is None}


def test_brokers_are_held_to_the_scaled_size_of_their_machines(tmp_path: Path) -> None:
    sizes = {cell.labels["cluster"]: cell.scenario.topology.broker_size for cell in loaded(tmp_path).cells}
    assert {name: (size.cores, size.memory_mb) for name, size in sizes.items() if size} == {
        "3 small": (0.5, 2048),
        "5 small": (0.5, 2048),
        "3 large": (2.0, 8192),
    }


def test_the_cost_of_a_thousand_messages_is_that_by_hand(tmp_path: Path) -> None:
    rates = {"3 small": 300.0, "5 small": 450.0, "3 large": 1600.0}
    found = ranked(tmp_path, *(run(name, GOOD, n, rate + n) for name, rate in rates.items() for n in (-1, 0, 1)))
    # Whole machines carry four times as much: 3 x 50 a month for 1,200/s, 5 x 50 for 1,800/s, 3 x 200 for 6,400/s.
    by_hand = {"3 small": 150 / 1.2, "5 small": 250 / 1.8, "3 large": 600 / 6.4}
    told = {one.name: one.places[0].cost for one in found.candidates}
    assert {name: cost and cost.middle for name, cost in told.items()} == {
        name: pytest.approx(cost) for name, cost in by_hand.items()
    }
    assert [one.name for one in found.candidates] == sorted(by_hand, key=lambda name: by_hand[name])
    assert [one.places[0].mark for one in found.candidates] == ["", "?", "?"], "three runs tell nothing apart"


def test_conditions_stand_as_in_the_file_whichever_was_played_first(tmp_path: Path) -> None:
    found = ranked(tmp_path, *(run("3 small", conditions, 1, 300.0) for conditions in (KILLED, GOOD)))
    assert found.conditions == [f"conditions {GOOD}", f"conditions {KILLED}"]


def test_a_difference_beyond_doubt_is_distinguished(tmp_path: Path) -> None:
    rates = {"3 small": 300.0, "5 small": 300.0}
    found = ranked(tmp_path, *(run(name, GOOD, n, rate + n) for name, rate in rates.items() for n in range(8)))
    assert [(one.name, one.places[0].word) for one in found.candidates] == [("3 small", None), ("5 small", "worse")]
    assert found.runs_needed is None


def test_an_order_that_is_not_beyond_doubt_says_whether_more_runs_would_tell(tmp_path: Path) -> None:
    """Two conditions and three clusters: four comparisons of neighbours at a level of 0.05 / 4. Of 5 and 5 runs that
    are all apart the chance is 2 / 252, of 4 and 4 it is 2 / 70."""
    names = ("3 small", "5 small", "3 large")

    def marks(runs: int, rates: Sequence[float]) -> list[str]:
        lines = [
            run(name, conditions, number, rate + number)
            for conditions in (GOOD, KILLED)
            for name, rate in zip(names, rates, strict=True)
            for number in range(runs)
        ]
        results, sweep = Results(tmp_path, OF, lines), loaded(tmp_path)
        found = ranking(results, sweep.spec)
        assert found is not None
        told = table(results, sweep)
        assert ("5 of each" in told) == (found.runs_needed == 5)
        return [one.places[0].mark for one in found.candidates]

    apart, alike = (300.0, 300.0, 300.0), (300.0, 500.0, 1200.0)
    assert marks(4, apart) == ["", "?", "?"]
    assert marks(5, apart) == ["", "", ""]
    assert marks(5, alike) == ["", "=", "="], "each machine carries the same for its price"


def test_who_breaks_a_promise_or_misses_a_demand_drops_out_there_only(tmp_path: Path, message: Messages) -> None:
    found = ranked(
        tmp_path,
        *(run(name, GOOD, 1, 500.0) for name in ("3 small", "5 small", "3 large")),
        run("3 small", KILLED, 1, 900.0, verdict="INVALID", why="2 messages lost"),
        run("3 small", KILLED, 2, 900.0),
        run("5 small", KILLED, 1, 900.0, p99=250.0),
        run("3 large", KILLED, 1, 100.0),
    )
    assert {name: rank for name, (rank, _) in places(found, GOOD).items()} == {"3 small": 1, "5 small": 2, "3 large": 3}
    out = out_of(found, KILLED)
    assert (sorted(out), places(found, KILLED)["3 large"]) == (["3 small", "5 small"], (1, ""))
    assert "1 of 2 runs: 2 messages lost" in out["3 small"]
    assert "250 ms (100 " in out["5 small"]
    for name in sorted(out):
        message(out[name])


def test_who_mostly_gave_no_number_has_no_place(tmp_path: Path, message: Messages) -> None:
    lost = {"status": "not held", "why": "busy", "values": {}}
    found = ranked(tmp_path, run("3 small", GOOD, 1, 500.0), *(run("5 small", GOOD, n, 0.0, **lost) for n in (1, 2)))
    out = out_of(found, GOOD)["5 small"]
    assert "2 of 2 runs: busy" in out
    message(out)


def test_who_is_never_fast_enough_in_half_of_the_runs_or_carries_nothing_has_no_place(
    tmp_path: Path, message: Messages
) -> None:
    found = ranked(
        tmp_path,
        *(run("3 small", GOOD, n, 500.0, p99=[10.0, 10.0, math.inf, math.inf][n]) for n in range(4)),
        *(run("5 small", GOOD, n, 500.0, p99=[10.0, None, None, None][n]) for n in range(4)),
        *(run("3 large", GOOD, n, [500.0, 500.0, 0.0, 0.0][n]) for n in range(4)),
    )
    out = out_of(found, GOOD)
    for name, fact in (("3 small", "never ms (100 "), ("5 small", "3 of 4 runs"), ("3 large", "2 of 4 runs")):
        assert fact in out[name]
        message(out[name])


def test_the_table_and_the_page_show_it(tmp_path: Path, message: Messages) -> None:
    sweep = loaded(tmp_path)
    results = Results.read(tmp_path / "sizes")
    results.begin(OF, sweep.text)
    results.enter(run("3 small", GOOD, 1, 300.0))
    results.enter(run("3 large", GOOD, 1, 300.0, verdict="INVALID", why="lost <2>"))
    write_page(results, sweep, tmp_path / "runs")
    text = table(results, sweep)
    assert "| 3 small | 3 x small | 150 | 1. 125 at 300/s |" in text
    message(line_with(text, "## What 1,000"))
    message(line_with(text, "USD, prices"))  # also that its load states a rate
    message(line_with(text, "| 3 large | 3 x large | 600 |"))
    assert "1 of 1 runs: lost <2>" in text
    page = (tmp_path / "sizes" / "index.html").read_text()
    assert "lost &lt;2&gt;" in page and "25&nbsp;%" in page


def refused(folder: Path, **changes: Any) -> str:
    with pytest.raises(SweepFileError) as error:
        loaded(folder, leaderboard={**SWEEP["leaderboard"], **changes})
    return str(error.value)


THREE = {"node": "small", "count": 3}
FEWER = {**SWEEP["leaderboard"]["clusters"], "5 small": THREE}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param({"clusters": FEWER}, "leaderboard.clusters.5 small: 3 ", id="another_count"),
        pytest.param({"clusters": {"3 small": THREE}}, "'cluster'", id="not_all_clusters"),
        pytest.param({"axis": "clutser"}, "'clutser'", id="no_such_axis"),
        pytest.param({"clusters": {**FEWER, "5 small": {"node": "tiny", "count": 5}}}, "'tiny'", id="no_price"),
        pytest.param({"scale": 0.0001}, "0.0001 of 'small'", id="too_small"),
        pytest.param({"demands": {"confirm_p50_ms": 1}}, "confirm_p50_ms", id="not_measured"),
        pytest.param({"rate": "confirm_p99_ms"}, "confirm_p99_ms", id="no_rate"),
    ],
)
def test_what_cannot_be_ranked_is_refused(
    tmp_path: Path, changes: dict[str, Any], named: str, message: Messages
) -> None:
    text = refused(tmp_path, **changes)
    assert named in text
    message(text)


LARGER = {"field": "topology.broker_size.cores", "values": [1, 8]}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            {
                "measures": [*SWEEP["measures"], "queues_per_s"],
                "leaderboard": {**SWEEP["leaderboard"], "rate": "queues_per_s"},
            },
            id="not_of_messages",
        ),
        pytest.param({"axes": [*SWEEP["axes"], LARGER]}, id="sizes_of_its_own"),
        pytest.param({"base": {**SWEEP["base"], "invariants": {"availability": {}}}}, id="without_no_loss"),
    ],
)
def test_a_sweep_that_cannot_be_ranked_is_refused(tmp_path: Path, changes: dict[str, Any], message: Messages) -> None:
    with message.of(SweepFileError):
        loaded(tmp_path, **changes)


def test_processes_cannot_be_held_to_a_size(tmp_path: Path, message: Messages) -> None:
    path = tmp_path / "sizes.sweep.yaml"
    path.write_text(yaml.safe_dump(SWEEP))
    with message.of(SweepFileError) as refusal:
        load(path)
    assert "leaderboard: topology.broker_size: " in str(refusal.value)


def test_prices_may_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(yaml.safe_dump(PRICES))
    board = loaded(tmp_path, leaderboard={**SWEEP["leaderboard"], "prices": "prices.yaml"}).spec.leaderboard
    assert isinstance(board, Leaderboard) and board.known_prices().nodes["large"].per_month == 200
    (tmp_path / "prices.yaml").write_text(yaml.safe_dump({**PRICES, "nodes": {"small": {"cores": 2}}}))
    assert "prices.yaml: line 4, nodes.small.memory_gb: is missing" in refused(tmp_path, prices="prices.yaml")
    assert "nowhere.yaml" in refused(tmp_path, prices="nowhere.yaml")
