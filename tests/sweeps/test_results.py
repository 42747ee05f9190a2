"""Results are kept run by run, go on where they stopped, and are never mixed."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rabbitmq_resilience.extensions.sweeps import sweep_summary
from rabbitmq_resilience.extensions.sweeps.results import Of, ResultRow, Results, ResultsError
from rabbitmq_resilience.extensions.sweeps.sweep_player import SweepInPlay, all_disturbed
from rabbitmq_resilience.extensions.sweeps.sweep_summary import rows
from rabbitmq_resilience.extensions.sweeps.table import table, write_tables
from tests.messages import Messages
from tests.sweeps.written import SWEEP, loaded, with_changes

OF = Of(
    title="In flight",
    digest="d1",
    machine="m1",
    machine_told="2 cores, 24 GB",
    commit="c1",
    suite_version="1",
    broker_version="3.10.8",
    driver="local",
    began="2026-11-24T11:00:00Z",
)


def line(in_flight: str, queues: str, number: int, **told: object) -> ResultRow:
    plain = ResultRow(
        round=number,
        labels={"in_flight": in_flight, "queues": queues},
        status="measured",
        verdict="VALID",
        why="",
        values={"confirmed_per_s": 100.0 + number, "confirm_p99_ms": 5.0},
        run=f"run-{in_flight}-{queues}-{number}",
        seed=number,
        took_s=8.0,
        at="2026-11-24T11:01:00Z",
    )
    return replace(plain, **told)  # type: ignore[arg-type]


def test_what_is_entered_is_read_again_also_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    results = Results.read(tmp_path / "sweep")
    assert (results.of, results.lines) == (None, [])
    results.begin(OF, "the file")
    entered = [line("1", "quorum", 1), line("10", "mirrored", 1, status="not held", values={}, why="busy")]
    for each in entered:
        results.enter(each)
    file = tmp_path / "sweep" / "runs.jsonl"
    whole = file.read_text()
    first_us = len(whole) - len(whole.splitlines(keepends=True)[-1])

    for end in range(first_us, len(whole)):
        file.write_text(whole[:end])
        assert Results.read(tmp_path / "sweep").lines == entered[:1]
    file.write_text(whole)
    again = Results.read(tmp_path / "sweep")
    assert (again.of, again.lines) == (OF, entered)


def test_what_never_came_is_kept_as_that(tmp_path: Path) -> None:
    sweep = loaded(tmp_path, SWEEP)
    results = Results.read(tmp_path / "sweep")
    results.begin(OF, sweep.text)
    results.enter(line("1", "quorum", 1, values={"confirmed_per_s": 1.0, "confirm_p99_ms": math.inf}))
    (again,) = Results.read(tmp_path / "sweep").lines
    assert again.values == {"confirmed_per_s": 1.0, "confirm_p99_ms": math.inf}
    write_tables(results, sweep)
    assert pq.read_table(tmp_path / "sweep" / "runs.parquet").to_pylist()[0]["confirm_p99_ms"] == math.inf
    assert "| 1 | quorum | 1 | never | 1 VALID |" in (tmp_path / "sweep" / "table.md").read_text()


def test_after_a_line_that_was_cut_off_the_next_one_is_not_lost(tmp_path: Path) -> None:
    results = Results.read(tmp_path / "sweep")
    results.begin(OF, "the file")
    results.enter(line("1", "quorum", 1))
    file = tmp_path / "sweep" / "runs.jsonl"
    file.write_text(file.read_text() + '{"round": 2, "la')

    again = Results.read(tmp_path / "sweep")
    again.begin(OF, "the file")
    again.enter(line("1", "quorum", 2))
    assert [one.round for one in Results.read(tmp_path / "sweep").lines] == [1, 2]


@pytest.mark.parametrize("field", ["digest", "machine", "commit", "suite_version", "broker_version", "driver"])
def test_results_of_two_are_never_mixed(tmp_path: Path, field: str, message: Messages) -> None:
    Results.read(tmp_path).begin(OF, "the file")
    with message.of(ResultsError) as refused:
        Results.read(tmp_path).require(replace(OF, **{field: "another"}))  # type: ignore[arg-type]
    assert re.search(rf"{field.replace('_', ' ')}: .*another", str(refused.value))
    Results.read(tmp_path).require(replace(OF, began="2026-11-25T11:00:00Z"))


def test_neither_are_those_of_a_machine_that_grew_and_of_another_cluster(tmp_path: Path, message: Messages) -> None:
    Results.read(tmp_path).begin(OF, "the file")
    for another in (replace(OF, machine_told="64 cores, 512 GB"), replace(OF, cluster="the shop")):
        with message.of(ResultsError):
            Results.read(tmp_path).require(another)


def test_a_run_that_is_there_twice_is_refused(tmp_path: Path, message: Messages) -> None:
    results = Results.read(tmp_path)
    results.begin(OF, "the file")
    for _ in range(2):
        results.enter(line("1", "quorum", 1))
    with message.of(ResultsError) as refused:
        Results.read(tmp_path)
    assert "1, quorum of round 1" in str(refused.value)


def test_a_line_that_was_cut_within_a_letter_is_passed_over(tmp_path: Path) -> None:
    results = Results.read(tmp_path)
    results.begin(OF, "the file")
    results.enter(line("1", "quorum", 1))
    file = tmp_path / "runs.jsonl"
    file.write_bytes(file.read_bytes() + '{"why": "nöt'.encode()[:-2])
    assert [one.round for one in Results.read(tmp_path).lines] == [1]


def test_damaged_results_are_reported(tmp_path: Path, message: Messages) -> None:
    (tmp_path / "runs.jsonl").write_text("{}\n")
    with message.of(ResultsError):
        Results.read(tmp_path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", '"nan"', '"17"', "true"])
def test_what_is_no_number_is_refused(tmp_path: Path, number: str, message: Messages) -> None:
    results = Results.read(tmp_path)
    results.begin(OF, "the file")
    results.enter(line("1", "quorum", 1, values={"confirmed_per_s": 1.5}))
    file = tmp_path / "runs.jsonl"
    file.write_text(file.read_text().replace("1.5", number))
    with message.of(ResultsError):
        Results.read(tmp_path)


@pytest.mark.parametrize("status", ["broken off", "disturbed"])
def test_a_run_that_is_played_again_counts_until_then(tmp_path: Path, status: str) -> None:
    before = [line("1", "quorum", number, status=status, values={}) for number in (1, 2)]
    again = line("1", "quorum", 1)
    results = Results(tmp_path / "sweep", None, [])
    results.begin(OF, "the file")
    for each in (*before, before[1], again):
        results.enter(each)
    assert Results.read(tmp_path / "sweep").final == [before[1], again]


@pytest.mark.parametrize("status", ["broken off", "disturbed", "not held", "unknown"])
def test_the_next_session_plays_what_was_broken_off_or_disturbed(tmp_path: Path, status: str) -> None:
    sweep = loaded(tmp_path, SWEEP)
    first, *others = SweepInPlay(sweep, tmp_path / "sweep", tmp_path).turns(whole=False)
    results = Results.read(tmp_path / "sweep")
    results.begin(replace(OF, digest=sweep.digest), sweep.text)
    results.enter(replace(line("1", "quorum", first.round, status=status, values={}), labels=first.cell.labels))
    left = SweepInPlay(sweep, tmp_path / "sweep", tmp_path).turns(whole=False)
    again = [first] if status in ("broken off", "disturbed") else []
    assert [turn.key for turn in left] == [turn.key for turn in (*again, *others)]


def test_a_session_whose_runs_were_all_disturbed_says_so(message: Messages) -> None:
    disturbed = [line("1", "quorum", number, status="disturbed", values={}) for number in (1, 2)]
    message(all_disturbed("In flight", disturbed))
    for status in ("measured", "not held", "unknown", "broken off"):
        assert all_disturbed("In flight", [*disturbed, line("1", "quorum", 3, status=status)]) == ""


@pytest.mark.parametrize(
    ("value", "told"), [(999.6, "1,000"), (999.4, "999"), (0.01234, "0.0123"), (-1234.5, "-1,234")]
)
def test_numbers_are_reported_without_exponents(value: float, told: str) -> None:
    assert sweep_summary.number(value) == told


def test_tables_have_a_row_each_run_and_the_summary_one_each_cell(tmp_path: Path) -> None:
    sweep = loaded(tmp_path, SWEEP)
    results = Results.read(tmp_path / "sweep")
    results.begin(OF, sweep.text)
    for number in range(1, 5):
        results.enter(line("1", "quorum", number))
        slow = {"confirmed_per_s": 50.0 + number, "confirm_p99_ms": None}
        results.enter(line("10", "quorum", number, values=slow, verdict="INVALID", why="2 messages | lost"))
    results.enter(line("100", "quorum", 1, status="not held", values={}, why="busy"))
    write_tables(results, sweep)

    read = pq.read_table(tmp_path / "sweep" / "runs.parquet").to_pylist()
    with (tmp_path / "sweep" / "runs.csv").open() as file:
        as_text = list(csv.DictReader(file))
    assert len(read) == len(as_text) == 9
    assert [row["run"] for row in read] == [row["run"] for row in as_text] == [one.run for one in results.lines]
    assert read[1]["confirmed_per_s"] == float(as_text[1]["confirmed_per_s"]) == 51.0
    assert (read[1]["confirm_p99_ms"], as_text[1]["confirm_p99_ms"]) == (None, "")

    first, second, third = rows(results, sweep)
    assert first.by_measure["confirmed_per_s"].word is None
    assert (second.by_measure["confirmed_per_s"].word, second.ended) == ("worse", "4 INVALID")
    assert (third.ended, third.by_measure["confirmed_per_s"].interval) == ("1 not held", None)
    lines = (tmp_path / "sweep" / "table.md").read_text().splitlines()
    assert "| 1 | quorum | 102 (101 to 104) | 5 | 4 VALID |" in lines
    assert "| 10 | quorum | 52.5 (51 to 54) worse | - | 4 INVALID |" in lines
    assert "| 100 | quorum | - | - | 1 not held |" in lines
    assert "- 10, quorum: 2 messages / lost" in table(results, sweep).splitlines()


@pytest.mark.parametrize(
    ("rates", "told"),
    [((100, 900), None), ((900, 900), "better"), ((None, None), "better"), ((None, 900), None), ((900, None), None)],
)
def test_rates_are_compared_where_loads_state_the_same(
    tmp_path: Path, rates: tuple[int | None, int | None], told: str | None
) -> None:
    axis = {
        "name": "load",
        "settings": {
            name: {"workload.rate_per_s": rate, "workload.in_flight": in_flight}
            for name, rate, in_flight in zip(("first", "second"), rates, (1, 100), strict=True)
        },
    }
    sweep = loaded(tmp_path, with_changes((("axes",), [axis])))
    lines = [
        replace(
            line("1", "quorum", number),
            labels={"load": load},
            values={"confirmed_per_s": factor * (number + 100), "confirm_p99_ms": (number + 100) / factor},
        )
        for number in range(1, 5)
        for load, factor in (("first", 1.0), ("second", 9.0))
    ]
    results = Results(tmp_path, OF, lines)
    _, second = rows(results, sweep)
    assert (second.by_measure["confirmed_per_s"].word, second.by_measure["confirm_p99_ms"].word) == (told, "better")
    assert table(results, sweep).count("better") == 1 + (told is not None)


def test_a_rate_that_varies_is_another_one(tmp_path: Path) -> None:
    steps = [{"rate_per_s": 300, "for_s": 5}, {"rate_per_s": 900, "for_s": 5}]
    axis = {"name": "load", "settings": {"steady": {}, "peak": {"workload.variable_rate": steps}}}
    sweep = loaded(tmp_path, with_changes((("axes",), [axis])))
    lines = [
        replace(line("1", "quorum", number), labels={"load": load}, values={"confirmed_per_s": rate + number})
        for number in range(1, 5)
        for load, rate in (("steady", 300.0), ("peak", 600.0))
    ]
    _, peak = rows(Results(tmp_path, OF, lines), sweep)
    assert peak.by_measure["confirmed_per_s"].word is None
