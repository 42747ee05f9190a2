"""The trend of nights that are known: which are compared, what is told of them, and what the page shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.command import main
from rabbitmq_resilience.extensions.nights.night_file import (
    Header,
    LeftOut,
    Night,
    NightWriter,
    find_nights,
    read_night,
)
from rabbitmq_resilience.extensions.nights.trend import PlaceNights, ScenarioNights, Trend, short_commit, trend
from rabbitmq_resilience.extensions.nights.trend_page import write_trend
from rabbitmq_resilience.runner.run_line import RunLine
from rabbitmq_resilience.tools import extras
from tests.messages import Messages
from tests.nights.literal import HEADER, PLAYED
from tests.nights.simulated import AUTOHEAL, CUT, LEADER, NIGHTS, SLOW, SLOWER_FROM, simulate
from tests.pages.browser import PROGRAM, Page, browser


def night(number: int, *played: RunLine, left_out: Sequence[str] = (), **header: Any) -> Night:
    begun: Header = replace(HEADER, night=f"2026-11-{number + 1:02}T01:00:00Z", **header)
    out = [LeftOut(scenario=one, why="budget", last_played=None) for one in left_out]
    return Night(Path(f"{number}.jsonl"), begun, played, out, None)


def only(found: Trend) -> tuple[PlaceNights, ScenarioNights]:
    (group,) = found.groups
    (history,) = group.histories
    return group, history


def signs(history: ScenarioNights) -> str:
    return "".join(cell.sign or " " for cell in history.cells)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("nights")
    simulate(made)
    return made


@pytest.fixture(scope="module")
def simulated(folder: Path) -> Trend:
    return trend([read_night(path) for path in find_nights(folder)])


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html)).strip()


def text(found: Trend, to: Path, **more: Any) -> str:
    write_trend(found, to, **more)
    return to.read_text(encoding="utf-8")


def test_machines_versions_and_drivers_are_not_mixed() -> None:
    other = replace(HEADER.machine, id="ffff")
    nights = [
        night(0, PLAYED),
        night(1, replace(PLAYED, broker_version="4.0.5")),
        night(2, replace(PLAYED, driver="docker")),
        night(3, PLAYED, machine=other),
        night(4, PLAYED),
    ]
    found = trend(nights)
    assert [(*group.place, len(group.nights)) for group in found.groups] == [
        ("docker", "3.10.8", "0123abcd", 1),
        ("local", "3.10.8", "0123abcd", 2),
        ("local", "3.10.8", "ffff", 1),
        ("local", "4.0.5", "0123abcd", 1),
    ]
    mixed = next(group for group in trend(nights, mix_machines=True).groups if len(group.nights) == 3)
    assert mixed.place.machine == ""
    assert [(mark.night, mark.text) for mark in mixed.marks] == [
        (1, "machine 0123abcd → ffff"),
        (2, "machine ffff → 0123abcd"),
    ]


def test_the_sign_of_a_night_is_that_of_its_worst_play() -> None:
    bad = replace(PLAYED, verdict="INVALID", as_expected=False)
    known = replace(PLAYED, verdict="INVALID")
    unsure = replace(PLAYED, verdict="UNKNOWN", as_expected=False)
    absent = replace(PLAYED, as_expected=False)
    plays = [(PLAYED, PLAYED), (PLAYED, known), (known, unsure), (unsure, absent), (absent, bad), (bad,), ()]
    others = replace(PLAYED, scenario="other")
    nights = [night(i, *played, others) for i, played in enumerate(plays)]
    nights.append(night(7, others, left_out=[PLAYED.scenario]))
    (group,) = trend(nights).groups
    mine = next(history for history in group.histories if history.scenario == PLAYED.scenario)
    assert signs(mine) == "VKUNII ·"


def test_a_nights_number_is_the_median_of_its_plays_and_drawn_schedules_have_none() -> None:
    plays = [replace(PLAYED, recovered_s=value) for value in (9.0, None, 4.0, 5.0)]
    drawn = replace(PLAYED, scenario="drawn", drawn=True)
    _, history = only(trend([night(0, *plays, drawn), night(1, replace(PLAYED, recovered_s=None))]))
    recovery = next(line for line in history.lines if line.metric.name == "Recovery")
    assert recovery.points == [(0, 5.0)]
    assert recovery.nights_missing == 13


def test_a_change_shows_its_nights_and_what_came_with_them() -> None:
    values = [10.0, 10.2, 9.9, 10.1, 9.8, 10.3, 10.05, 9.95]
    levels = [*values, *(value * 1.5 for value in values)]
    nights = [
        night(i + (i > 7), replace(PLAYED, recovered_s=value, rerun=f"play {i}"), suite_commit="ab" if i < 8 else "cd")
        for i, value in enumerate(levels)
    ]
    _, history = only(trend(nights))
    (change,) = history.changes
    assert (change.before, change.night, change.is_worse) == (7, 8, True)
    assert (change.rerun_before, change.rerun_after) == ("play 7", "play 8")
    assert change.marks == ["suite commit ab → cd"]


def test_what_was_simulated_is_found_and_nothing_else(simulated: Trend) -> None:
    found = [
        (group.place.broker_version, history.scenario, change.metric.name, change.night, change.is_worse)
        for group in simulated.groups
        for history in group.histories
        for change in history.changes
    ]
    assert found[0] == ("3.10.8", LEADER, "Recovery", SLOWER_FROM, True)
    assert [one[0] for one in found] == ["3.10.8", "4.0.5"]
    group = simulated.groups[0]
    by_scenario = {history.scenario: signs(history) for history in group.histories}
    assert by_scenario[CUT] == "V" * (NIGHTS - 2) + "II"
    assert by_scenario[SLOW] == "V··" * (NIGHTS // 3)
    assert set(by_scenario[AUTOHEAL]) == {"V", "K"}


def test_the_page_says_what_changed_first(simulated: Trend, tmp_path: Path, message: Messages) -> None:
    page = text(simulated, tmp_path / "trend.html", rate_changes=["A rate that <rose>."])
    first = page[page.index("<h1>") : page.index('class="scenario"')].partition('class="legend"')[0]
    told = [plain(part) for part in re.findall(r"<p.*?</p>", first, re.DOTALL)]
    for sentence in told:
        message(sentence)
    (slower,) = (one for one in told if "The leader&#39;s broker dies, quorum (simulated)" in one)
    for fact in ("2026-11-15", "23 of 30", "3.10.8, local", "4bd0c19e55 → 9f2c1e7a60"):
        assert fact in slower
    assert any("A minority zone is cut off, quorum" in one and "since 2026-11-21" in one for one in told)
    assert "A rate that &lt;rose&gt;." in told
    for at in ("20261114", "20261115"):
        assert re.search(rf"<code>\.venv/bin/pytest reports/runs/{at}T\w+-simulated/fault\.yaml</code>", page)
    assert page == text(simulated, tmp_path / "again.html", rate_changes=["A rate that <rose>."])
    assert "http" not in page.replace("http-equiv", "")


def test_a_known_violation_that_is_seen_more_often_is_reported(tmp_path: Path, message: Messages) -> None:
    seen = replace(PLAYED, verdict="INVALID", known="issue 7")
    plays = [(seen, *[PLAYED] * 9)] * 6 + [(*[seen] * 8, PLAYED, PLAYED)] * 3
    for number, played in enumerate(plays):
        header = replace(HEADER, night=f"2026-11-{number + 1:02}T01:00:00Z")
        with NightWriter(tmp_path / "nights" / f"{number}.jsonl", header) as file:
            for play in played:
                file.write(play)
    to = tmp_path / "trend.html"
    assert main(["trend", str(tmp_path / "nights"), "--to", str(to)]) == 0
    page = to.read_text(encoding="utf-8")
    (told,) = (plain(one) for one in re.findall(r'<p class="change.*?</p>', page, re.DOTALL) if "issue 7" in one)
    for fact in ("2026-11-07", "24 of 30", "6 of 60"):
        assert fact in told
    message(told)


def test_names_are_escaped(tmp_path: Path) -> None:
    evil = replace(PLAYED, title="<script>alert(1)</script>", scenario='"><b>x')
    page = text(trend([night(0, evil)]), tmp_path / "trend.html")
    assert "<script" not in page
    assert "<b>x" not in page


def test_without_the_library_the_page_says_how_to_have_it(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    message: Messages,
) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    monkeypatch.setattr(extras, "installed_from", lambda: (Path("/home/you/suite"), False))
    to = tmp_path / "trend.html"
    assert main(["trend", str(folder), "--to", str(to)]) == 0
    refused = capsys.readouterr().err
    assert "pip install '/home/you/suite[trend]'" in refused
    message(refused)
    assert "ruptures" in plain(to.read_text(encoding="utf-8").partition('class="scenario"')[0])


def test_what_cannot_be_read_is_reported_and_the_rest_is_shown(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    whole = next(iter(find_nights(folder)))
    copies = tmp_path / "nights"
    copies.mkdir()
    (copies / "a.jsonl").write_bytes(whole.read_bytes())
    (copies / "b.jsonl").write_bytes(whole.read_bytes()[:-20])
    (copies / "c.jsonl").write_bytes(whole.read_bytes() + b'{"is": "nothing"}\n')
    assert main(["trend", str(copies), "--to", str(tmp_path / "trend.html")]) == 0
    told = capsys.readouterr()
    message(told.out)
    message(told.err)
    assert "2 nights" in told.out
    assert "b.jsonl" in told.err
    assert re.search(r"c\.jsonl, line \d+", told.err)


def test_a_commit_is_short_and_says_whether_files_were_changed() -> None:
    told = [short_commit(one) for one in (None, "ab" * 20, "ab" * 20 + "-dirty")]
    assert told == ["unknown", "ababababab", "ababababab-dirty"]


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_folder_without_nights_is_reported(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    assert main(["trend", str(tmp_path / name), "--to", str(tmp_path / "trend.html")]) == 1
    message(capsys.readouterr().err)
    assert not (tmp_path / "trend.html").exists()


@pytest.fixture
def opened(simulated: Trend, tmp_path: Path) -> Iterator[Callable[[int], Page]]:
    if PROGRAM is None:
        pytest.skip("there is no Chromium on PATH")
    file = tmp_path / "trend.html"
    write_trend(simulated, file)
    with browser(tmp_path / "profile") as page:

        def at(width: int) -> Page:
            page.resize(width, 900)
            page.open(file)
            return page

        yield at


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 760, 1240])
def test_cells_and_dots_of_a_night_stand_above_each_other(opened: Callable[[int], Page], width: int) -> None:
    page = opened(width)
    assert page.errors == []
    assert page.value("document.documentElement.scrollWidth") <= width
    middles = "(all) => [...all].map((one) => one.getBoundingClientRect()).map((box) => box.left + box.width / 2)"
    rows = "document.querySelector('.scenario .rows')"
    cells = page.value(f"({middles})({rows}.querySelectorAll('.cell'))")
    dots = page.value(f"({middles})({rows}.querySelector('svg.plot').querySelectorAll('.dot'))")
    assert len(cells) == len(dots) == NIGHTS
    assert max(abs(a - b) for a, b in zip(cells, dots, strict=True)) < 1.5


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1240])
def test_no_text_lies_upon_another(opened: Callable[[int], Page], width: int) -> None:
    """Of the labels and values of each row, and of the cells of each strip."""
    overlapping = """(() => {
      const boxes = (row) => [...row.querySelectorAll(':scope > .label, :scope > .field, :scope > .value')]
        .filter((one) => one.textContent.trim() || one.querySelector('svg')).map((one) => one.getBoundingClientRect());
      const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
        && a.top < b.bottom - 1 && b.top < a.bottom - 1;
      return [...document.querySelectorAll('.row')].filter((row) => {
        const all = boxes(row);
        return all.some((a, i) => all.slice(i + 1).some((b) => meet(a, b)));
      }).length;
    })()"""
    assert opened(width).value(overlapping) == 0
