"""PerfTest beside our own load: only what can be alike is played, and only windows that are whole are measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.extensions.setup.perf_test import find_perf_test
from rabbitmq_resilience.extensions.sweeps.estimates import round_s
from rabbitmq_resilience.extensions.sweeps.measures import MEASURES
from rabbitmq_resilience.extensions.sweeps.perf_test_runs import VHOST, measured_windows, play_perf_test, windows_of
from rabbitmq_resilience.extensions.sweeps.results import Results
from rabbitmq_resilience.extensions.sweeps.seen import JudgedRun
from rabbitmq_resilience.extensions.sweeps.sweep_file import SweepFileError, load
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.workload.perf_test_options import PerfTestFailed, Window
from tests.invariants.literal import cluster, history, node_states, phases, publish, queues
from tests.messages import Messages
from tests.needs import skipped_without
from tests.sweeps.test_compare_command import PLAYED
from tests.sweeps.written import BASE, loaded, with_changes
from tests.test_plugin import session

QUIET: list[tuple[tuple[str | int, ...], Any]] = [
    (("base", "schedule"), []),
    (("measures",), ["end_to_end_p99_ms", "perf_test_end_to_end_p99_ms"]),
]


def window(ended_s: float, confirmed_per_s: float | None = 100, received_per_s: float = 90) -> Window:
    return Window(
        ended_s, confirmed_per_s, received_per_s, {50: 1.0, 99: ended_s}, {50: 2.0} if confirmed_per_s else {}
    )


def test_it_is_played_where_something_of_it_is_measured(tmp_path: Path) -> None:
    sweep = loaded(tmp_path, with_changes(*QUIET))
    assert all(cell.perf_test for cell in sweep.cells)
    without = loaded(tmp_path, with_changes(*QUIET, (("measures",), ["end_to_end_p99_ms"])))
    assert not any(cell.perf_test for cell in without.cells)
    assert round_s(sweep.cells) > round_s(without.cells) + 6 * 6


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param((("base", "schedule"), BASE["schedule"]), "schedule: ", id="faults"),
        pytest.param((("over",), "always"), "over: steady", id="over"),
        pytest.param((("base", "workload", "processing_ms"), 1), "processing_ms: ", id="no_such_option"),
    ],
)
def test_what_cannot_be_alike_is_refused_with_the_cell(
    tmp_path: Path, change: tuple[tuple[str | int, ...], Any], named: str, message: Messages
) -> None:
    with message.of(SweepFileError) as refused:
        loaded(tmp_path, with_changes(*QUIET, change))
    assert named in str(refused.value)


def test_it_is_not_played_on_clusters_of_others(tmp_path: Path, message: Messages) -> None:
    path = tmp_path / "mine.sweep.yaml"
    path.write_text(yaml.safe_dump(with_changes(*QUIET), sort_keys=False))
    with message.of(SweepFileError):
        load(path, driver="attached")


def test_the_first_window_and_one_that_is_cut_off_do_not_count(message: Messages) -> None:
    scenario = fault_file.parse(yaml.safe_dump({**BASE, "phases": {"steady_s": 10, "settled_s": 1}}))
    assert windows_of(scenario) == 3
    told = [window(ended_s) for ended_s in (3.0, 6.01, 9.0, 10.0)]
    assert [each.ended_s for each in measured_windows(told, 2)] == [6.01, 9.0]
    with message.of(PerfTestFailed) as failed:
        measured_windows(told[:2], 2, "Connection refused\n")
    assert "\nConnection refused" in str(failed.value)
    with pytest.raises(PerfTestFailed):
        measured_windows([window(6, 0, 0), window(9, 0, 0)], 2)


def test_windows_are_measured_together() -> None:
    def seen(*windows: Window) -> JudgedRun:
        events = [cluster(), queues("q1"), phases(), node_states()]
        return JudgedRun(history([publish(1, 1, Outcome.CONFIRMED)], (), events), "steady", PLAYED, {}, windows)

    def told(name: str, *windows: Window) -> float | None:
        return MEASURES[f"perf_test_{name}"].of(seen(*windows))

    both = window(8, 100, 90), window(12, 120, 100)
    assert told("confirmed_per_s", *both) == 110
    assert told("received_per_s", *both) == 95
    assert told("end_to_end_p99_ms", *both) == 10
    assert told("confirm_p50_ms", *both) == 2
    assert told("confirm_p50_ms", window(8, None), window(12, None)) is None
    assert told("confirmed_per_s", window(8, None)) is None
    assert told("confirmed_per_s") is None


def alone() -> dict[str, Any]:
    routing = {
        "exchanges": [{"name": "x", "type": "headers"}],
        "bindings": [{"exchange": "x", "queues": "all", "headers": {"kind": "price"}}],
        "publish": [{"exchange": "x", "headers": {"kind": "price"}}],
    }
    return {
        "version": 1,
        "title": "base",
        "topology": {"name": "alone", "zones": {"a": 1}},
        "workload": {"queue_type": "classic", "ack_every": 1, "rate_per_s": 100, "routing": routing},
        "phases": {"steady_s": 3, "settled_s": 0.5},
        "invariants": {"no_loss": {}},
    }


@pytest.mark.plays
def test_it_plays_what_the_scenario_says() -> None:
    with skipped_without():
        find_perf_test()
    scenario = fault_file.parse(yaml.safe_dump(alone()))
    with LocalCluster.form(scenario.topology) as formed:
        (measured,) = play_perf_test(formed, scenario)
        assert VHOST not in formed.api("a1").vhosts(), "nothing of it is left"
    # On a busy machine it makes up for what it was late with.
    assert measured.confirmed_per_s is not None and 50 < measured.confirmed_per_s < 400
    assert 50 < measured.received_per_s < 400
    assert 0 < measured.end_to_end_ms[50] < 1000


@pytest.mark.plays
def test_both_are_measured_in_each_round(tmp_path: Path) -> None:
    with skipped_without():
        find_perf_test()
    sides = ("", "perf_test_")
    measures = [f"{side}{name}" for side in sides for name in ("received_per_s", "end_to_end_p50_ms")]
    plain = {
        "version": 1,
        "title": "Beside each other",
        "base": alone(),
        "axes": [{"field": "workload.rate_per_s", "values": [100]}],
        "repeats": 2,
        "measures": measures,
    }
    (tmp_path / "both.sweep.yaml").write_text(yaml.safe_dump(plain, sort_keys=False))
    done = session(tmp_path, "-q", "both.sweep.yaml", "--resilience-runs-dir", "reports/runs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PERFTEST PerfTest") == 2
    before, after = (done.stdout.index(word) for word in ("PLAYING", "PERFTEST"))
    assert before < after, "in the first round it comes second"
    lines = Results.read(tmp_path / "reports" / "sweeps" / "both").lines
    assert [line.round for line in lines] == [1, 2]
    for line in lines:
        if line.status in ("not held", "disturbed"):  # tests play beside each other
            assert line.values == {}, line
        else:
            assert set(line.values) == set(measures), line
            assert None not in line.values.values(), line
