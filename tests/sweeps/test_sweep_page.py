"""The page of a sweep: every cell is there, with links to its runs, and nothing of it is taken for markup."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from rabbitmq_resilience.extensions.sweeps.comparison_page import write_comparisons
from rabbitmq_resilience.extensions.sweeps.results import Results
from rabbitmq_resilience.extensions.sweeps.sweep_page import write_page
from rabbitmq_resilience.extensions.sweeps.wheres import where
from tests.messages import Messages
from tests.sweeps.test_results import OF, line
from tests.sweeps.written import SWEEP, loaded, with_changes


def page(folder: Path, *changes: tuple[tuple[str | int, ...], object]) -> str:
    sweep = loaded(folder, with_changes(*changes) if changes else SWEEP)
    results = Results.read(folder / "sweeps" / "mine")
    results.begin(OF, sweep.text)
    for number in range(1, 5):
        results.enter(line("1", "quorum", number))
        results.enter(line("1", "mirrored", number, values={"confirmed_per_s": 50.0, "confirm_p99_ms": None}))
    results.enter(line("10", "quorum", 1, status="not held", values={}, why="busy & <b>hot</b>"))
    write_page(results, sweep, folder / "runs")
    return (folder / "sweeps" / "mine" / "index.html").read_text()


def test_each_run_of_a_cell_is_linked_and_drawn(tmp_path: Path) -> None:
    text = page(tmp_path)
    links = set(re.findall(r'href="([^"]+)/report.html"', text))
    assert links == {f"../../runs/run-1-{q}-{n}" for q in ("quorum", "mirrored") for n in range(1, 5)} | {
        "../../runs/run-10-quorum-1"
    }
    confirmed = text.split("<h3>messages confirmed")[1].split("<h3>")[0]
    assert len(re.findall(r"<circle", confirmed)) == 2 * (4 + 1), "four runs and a median of each of two cells"
    assert "0 to 104" in confirmed
    assert "<b>worse</b>" in text
    assert "busy &amp; &lt;b&gt;hot&lt;/b&gt;" in text
    assert "<script" not in text
    assert "has a number" not in text


def test_what_no_run_has_a_number_of_is_named_and_not_drawn(tmp_path: Path, message: Messages) -> None:
    sweep = loaded(tmp_path, SWEEP)
    results = Results.read(tmp_path / "sweeps" / "mine")
    results.begin(OF, sweep.text)
    results.enter(line("1", "quorum", 1, values={"confirmed_per_s": 50.0, "confirm_p99_ms": None}))
    write_page(results, sweep, None)
    text = (tmp_path / "sweeps" / "mine" / "index.html").read_text()
    (left_out,) = re.findall(">([^<]*has a number[^<]*)<", text)
    message(left_out.strip())
    assert text.count("p99 of ") == 1


def test_the_highest_is_drawn_highest(tmp_path: Path) -> None:
    confirmed = page(tmp_path).split("<h3>messages confirmed")[1].split("<h3>")[0]
    drawn = re.findall(r'cy="([\d.]+)"[^>]*><title>[^:]*: ([\d.]+)', confirmed)
    by_height = sorted((float(y), -float(value)) for y, value in drawn)
    assert [value for _, value in by_height] == sorted(-float(value) for _, value in drawn)


def test_a_heat_map_has_a_place_for_each_pair_of_labels(tmp_path: Path) -> None:
    text = page(tmp_path)
    heat = text.split('<table class="heat">')[1].split("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", heat, re.DOTALL)
    assert [re.findall(r"<th>(.*?)</th>", row) for row in rows] == [["", "1", "10"], ["quorum"], ["mirrored"]]
    assert [len(re.findall("<td", row)) for row in rows[1:]] == [2, 2]
    assert "--share: 1.0" in heat
    assert "1 not held" in heat
    waits = text.split('<table class="heat">')[2].split("</table>")[0]
    assert re.findall(r"<td.*?>(?:<a.*?>)?([^<]*)", waits) == ["5", "1 not held", "-", ""], (
        "it was played, and has none"
    )


def test_with_one_axis_there_is_no_heat_map(tmp_path: Path) -> None:
    sweep = loaded(tmp_path, with_changes((("axes",), [SWEEP["axes"][0]])))
    results = Results.read(tmp_path / "one")
    results.begin(OF, sweep.text)
    first = line("1", "", 1)
    results.enter(type(first)(**{**first.__dict__, "labels": {"in_flight": "1"}}))
    write_page(results, sweep, tmp_path / "runs")
    assert 'class="heat"' not in (tmp_path / "one" / "index.html").read_text()


def test_what_queues_held_is_drawn_on_the_same_axes_for_each_cell(tmp_path: Path) -> None:
    sweep = loaded(tmp_path, SWEEP)
    results = Results.read(tmp_path / "sweeps" / "mine")
    results.begin(OF, sweep.text)
    results.enter(line("1", "quorum", 1, depth=((-5.0, 0), (5.0, 100))))
    results.enter(line("10", "quorum", 1, depth=((0.0, 50), (15.0, 0))))
    results.enter(line("100", "quorum", 1, depth=((0.0, 50), (5.0, None), (10.0, 20), (15.0, 0))))
    results.enter(line("1", "mirrored", 1))
    write_page(Results.read(tmp_path / "sweeps" / "mine"), sweep, tmp_path / "runs")
    text = (tmp_path / "sweeps" / "mine" / "index.html").read_text()
    assert re.findall(r'class="depth" points="([^"]*)"', text) == [
        "0.0,90.0 130.0,0.0",
        "65.0,45.0 260.0,90.0",
        "65.0,45.0",
        "195.0,72.0 260.0,90.0",
    ], "broken where nobody told"
    assert text.count('class="begun" x1="65.0"') == 3
    assert "0 to 100, from -5 s to 15 s" in text


def test_labels_that_look_alike_in_file_names_have_a_comparison_each(tmp_path: Path) -> None:
    axis = {"name": "kinds", "settings": {"0": {}, "1 %": {"workload.in_flight": 1}, "1": {"workload.in_flight": 2}}}
    changes = ((("axes",), [axis]), (("compared",), "kinds"), (("repeats",), 6))
    sweep = loaded(tmp_path, with_changes(*changes))
    results = Results.read(tmp_path / "mine")
    results.begin(OF, sweep.text)
    for label in ("0", "1 %", "1"):
        results.enter(replace(line("1", "quorum", 1), labels={"kinds": label}))
    write_comparisons(results, sweep.spec)
    write_page(results, sweep, tmp_path / "runs")
    files = {path.name: path.read_text() for path in (tmp_path / "mine").glob("comparison-*.html")}
    assert len(files) == 2
    assert all("3 of 18 runs" in text for text in files.values())
    linked = re.findall(r'href="(comparison-[^"]+)"', (tmp_path / "mine" / "index.html").read_text())
    assert sorted(linked) == sorted(files)


def test_nothing_is_compared_before_the_first_label_was_played(tmp_path: Path) -> None:
    """A page of the second beside the third would stay in the folder."""
    axis = {"name": "kinds", "settings": {"0": {}, "1": {"workload.in_flight": 1}, "2": {"workload.in_flight": 2}}}
    sweep = loaded(tmp_path, with_changes((("axes",), [axis]), (("compared",), "kinds"), (("repeats",), 6)))
    results = Results.read(tmp_path / "mine")
    results.begin(OF, sweep.text)
    files = []
    for label in ("1", "2", "0"):
        results.enter(replace(line("1", "quorum", 1), labels={"kinds": label}))
        write_comparisons(results, sweep.spec)
        files.append(sorted(path.name for path in (tmp_path / "mine").glob("comparison-*.md")))
    assert files == [[], [], ["comparison-2-1.md", "comparison-3-2.md"]]


def test_no_two_cells_are_called_alike() -> None:
    assert where({"a": "1, b 2", "b": "3"}) != where({"a": "1", "b": "2, b 3"})
    assert where({"a": "1", "b": "2"}) == "a 1, b 2"


def test_what_perf_test_measured_is_drawn_next_to_ours_on_the_same_axes(tmp_path: Path) -> None:
    names = ["confirmed_per_s", "end_to_end_p99_ms", "perf_test_confirmed_per_s"]
    sweep = loaded(tmp_path, with_changes((("measures",), names), (("base", "schedule"), [])))
    results = Results.read(tmp_path / "sweeps" / "mine")
    results.begin(OF, sweep.text)
    results.enter(line("1", "quorum", 1, values=dict(zip(names, (100.0, 7.0, 400.0), strict=True))))
    write_page(results, sweep, tmp_path / "runs")
    text = (tmp_path / "sweeps" / "mine" / "index.html").read_text()
    multiples = [part for part in re.findall(r"<h3>(.*?)</h3>(.*?)(?=<h3>|$)", text, re.DOTALL) if "<circle" in part[1]]
    assert [title.split(",")[0] for title, _ in multiples] == [
        "messages confirmed",
        "PerfTest: messages confirmed",
        "p99 of the time from end to end",
    ]
    tops = [float(re.findall(r'cy="([\d.]+)"', drawn)[0]) for _, drawn in multiples]
    assert "0 to 400" in multiples[0][1] + multiples[0][0]
    assert tops[0] > tops[1], "a fourth as high"
