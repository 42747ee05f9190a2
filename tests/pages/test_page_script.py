"""The script of a page, run by a real browser on the page as it was written."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.report.run_page import write_page
from tests.pages.browser import PROGRAM, Page, browser
from tests.pages.drawn import RECORDER, Panel, axis, drag, keys, middle, panels, text
from tests.pages.synthetic_run import write_synthetic_run
from tests.pages.test_page import many_faults

pytestmark = pytest.mark.browser

LANES = ["Phases and faults", "Nodes", "Links", "Publishers", "Alarms"]
LATENCIES = ["Confirm latency", "Delivery latency"]
BROKERS = ["Memory of each node", "Replicated to each node"]
TITLES = [*LANES, "Rates", *LATENCIES, "Queue depth", *BROKERS]

#: The whole page is in view.
WIDTH, HEIGHT = 1200, 4000


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if PROGRAM is None:
        pytest.skip("no Chromium on PATH to run the script of a page with")
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        opened.call("Page.addScriptToEvaluateOnNewDocument", source=RECORDER)
        yield opened


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    """Whatever a test does, the script throws nothing, and the page's policy has nothing to forbid."""
    tab.resize(WIDTH, HEIGHT)
    tab.mouse("mouseMoved", 0, 0)
    yield tab
    assert tab.value("document.readyState") == "complete"
    errors, tab.errors = tab.errors, []
    assert errors == []


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(write_synthetic_run(tmp_path_factory.mktemp("runs"), rate_per_s=20))


def titled(page: Page, title: str) -> Panel:
    (panel,) = (panel for panel in panels(page) if panel.title == title)
    return panel


def can_be_reset(page: Page) -> bool:
    return not page.value("document.getElementById('reset').disabled")


def seconds(times: range, *, per: int = 1) -> list[str]:
    return [f"{time / per:g} s" for time in times]


def test_every_panel_is_drawn(page: Page, report: Path) -> None:
    page.open(report)

    shown = panels(page)
    assert [panel.title for panel in shown] == TITLES
    assert all(panel.inked for panel in shown)
    assert [len(panel.shades) for panel in shown] == [3] * len(shown)
    assert {"a1", "a2", "b1", "b2", "c1"} <= {written["text"] for written in shown[1].texts}
    assert axis(page).labels == seconds(range(0, 81, 10))


def test_a_drag_zooms_all_panels_to_what_it_covers(page: Page, report: Path) -> None:
    page.open(report)
    before = panels(page)
    assert not can_be_reset(page)

    drag(page, before[3], *before[0].shades[0])

    after = panels(page)
    assert [panel.title for panel in after] == TITLES
    assert len({tuple(panel.shades) for panel in after}) == 1
    assert after[0].shades[0] == pytest.approx((axis(page).left, axis(page).right), abs=5)
    assert set(seconds(range(14, 31, 2))) <= set(axis(page).labels) <= set(seconds(range(12, 33, 2)))
    assert all(was.lines != panel.lines or was.boxes != panel.boxes for was, panel in zip(before, after, strict=True))
    assert can_be_reset(page)


def test_a_zoom_can_be_zoomed_and_dragged_from_right_to_left(page: Page, report: Path) -> None:
    page.open(report)
    drag(page, panels(page)[0], *reversed(panels(page)[0].shades[0]))

    drag(page, panels(page)[0], *panels(page)[0].shades[1])

    assert set(seconds(range(37, 46), per=2)) <= set(axis(page).labels) <= set(seconds(range(36, 47), per=2))


def double_click(page: Page) -> None:
    panel = panels(page)[5]
    page.click(panel.left + panel.width / 2, panel.top + 10, times=2)


def press_escape(page: Page) -> None:
    page.press("Escape")


def press_show_all(page: Page) -> None:
    page.click(*middle(page, "#reset"))


@pytest.mark.parametrize("undo", [double_click, press_escape, press_show_all])
def test_a_zoom_is_undone(page: Page, report: Path, undo: Callable[[Page], None]) -> None:
    page.open(report)
    before = panels(page)
    drag(page, before[2], *before[2].shades[1])
    assert panels(page) != before

    undo(page)

    assert panels(page) == before
    assert not can_be_reset(page)


def test_a_drag_may_end_next_to_the_panels(page: Page, report: Path) -> None:
    page.open(report)
    first = panels(page)[0]

    drag(page, first, sum(first.shades[2]) / 2, WIDTH - 1 - first.left)

    assert set(seconds(range(45, 76, 5))) <= set(axis(page).labels) <= set(seconds(range(40, 81, 5)))


def test_a_click_is_no_drag_and_escape_ends_one(page: Page, report: Path) -> None:
    page.open(report)
    before = panels(page)
    start, end, y = before[0].left + 300, before[0].left + 500, before[0].top + 10

    page.click(start, y)
    page.grip(start, y, to=end)
    page.press("Escape")
    page.mouse("mouseReleased", end, y)

    assert panels(page) == before


def test_each_key_hides_and_shows_its_curve(page: Page, report: Path) -> None:
    page.open(report)
    before, there = panels(page), keys(page)
    assert {key.panel for key in there} == {i for i, panel in enumerate(before) if panel.curves}

    for n, key in enumerate(there):
        others = [panel for i, panel in enumerate(before) if i != key.panel]
        page.click(key.x, key.y)

        after = panels(page)
        assert after.pop(key.panel).curves.keys() == before[key.panel].curves.keys() - {key.colour}
        assert after == others
        assert [i for i, now in enumerate(keys(page)) if not now.pressed] == [n]

        page.click(key.x, key.y)
        assert panels(page) == before


def test_two_quick_clicks_on_a_key_keep_the_zoom(page: Page, report: Path) -> None:
    page.open(report)
    drag(page, panels(page)[0], *panels(page)[0].shades[0])
    zoomed = panels(page)

    for key in keys(page):
        page.click(key.x, key.y, times=2)

    assert panels(page) == zoomed


def test_all_curves_can_be_hidden(page: Page, report: Path) -> None:
    page.open(report)
    before = panels(page)

    for key in keys(page):
        page.click(key.x, key.y)

    assert [panel.title for panel in panels(page)] == TITLES
    assert [panel.curves for panel in panels(page)] == [{}] * len(before)
    assert axis(page).labels == seconds(range(0, 81, 10))


def test_the_pointer_shows_its_moment_and_moves_nothing(page: Page, report: Path) -> None:
    page.open(report)
    shown = panels(page)
    start, end = shown[0].shades[2]

    page.mouse("mouseMoved", shown[5].left + (start + end) / 2, shown[5].top + 40)

    moment, phase, fault, states = text(page, "#tip").split("  ·  ")
    assert (moment, phase, fault) == ("40 s", "chaos +30 s", "kill")
    assert states.startswith("a1 down, ")
    assert all(re.search(r"\d|\u2013", key.value) for key in keys(page))
    assert page.value("document.getElementById('tip').style.visibility") == "visible"

    for x in range(100, int(shown[0].width), 50):
        page.mouse("mouseMoved", shown[5].left + x, shown[5].top + 40)
        assert [panel.top for panel in panels(page)] == [panel.top for panel in shown]

    page.mouse("mouseMoved", 0, 0)

    assert page.value("document.getElementById('tip').style.visibility") == "hidden"
    assert {key.value for key in keys(page)} == {""}


def test_after_a_zoom_the_pointer_shows_where_it_is_now(page: Page, report: Path) -> None:
    page.open(report)
    first = panels(page)[0]
    start, end = first.shades[1]

    drag(page, first, start, end)

    at = axis(page)
    moment, _, _ = text(page, "#tip").partition(" ")
    assert float(moment) == pytest.approx(18 + 5 * (end - at.left) / (at.right - at.left), abs=0.2)


def test_curves_keep_to_their_panel_where_their_points_are_further_apart_than_a_zoom(page: Page, report: Path) -> None:
    page.open(report)
    at, rates = axis(page), titled(page, "Rates")
    second = (at.right - at.left) / 80

    drag(page, rates, at.left + 20.6 * second, at.left + 21.4 * second)

    seen = [
        y
        for points in titled(page, "Rates").curves.values()
        for pair in itertools.pairwise(points)
        if pair[0][0] < at.right and pair[1][0] > at.left
        for _, y in pair
    ]
    assert seen
    assert all(0 <= y <= rates.height for y in seen)


@pytest.mark.parametrize(("faults", "label"), [(3, r"[\d.]+ s"), (240, r"(\d:)?\d+:[0-5]\d(\.\d+)?")])
def test_times_are_distinguished_however_narrow_a_zoom_is(page: Page, tmp_path: Path, faults: int, label: str) -> None:
    run = RunDirectory.create(tmp_path, "long")
    many_faults(run, faults, unproven=-1)
    page.open(write_page(run))

    for _ in range(12):
        at = axis(page)
        assert len(set(at.labels)) == len(at.labels) >= 3
        assert [told for told in at.labels if not re.fullmatch(label, told)] == []
        drag(page, panels(page)[0], at.left + 600, at.right - 50)


def test_a_scale_of_messages_counts_whole_ones(page: Page, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "quiet")
    sample = '{{"t_us": {}, "kind": "sample", "queues": {{"q": {{"ready": {}, "unacked": 0}}}}}}\n'
    run.events_file.write_text("".join(sample.format(s * 1_000_000, s % 2) for s in range(10)))
    page.open(write_page(run))

    on_scale = [written["text"] for written in titled(page, "Queue depth").texts if written["text"].isdigit()]
    assert on_scale == ["0", "1"]


@pytest.mark.parametrize(
    ("gone", "titles"),
    [
        (["metrics.parquet"], [title for title in TITLES if title not in ("Alarms", "Replicated to each node")]),
        (["history/*.deliveries.arrows"], [title for title in TITLES if title != "Delivery latency"]),
        (["history/*.arrows"], [*LANES, "Queue depth", *BROKERS]),
        (["events.jsonl", "metrics.parquet"], ["Rates", *LATENCIES]),
    ],
)
def test_what_was_not_recorded_has_no_panel_and_the_rest_works(
    page: Page, tmp_path: Path, gone: list[str], titles: list[str]
) -> None:
    run = write_synthetic_run(tmp_path, rate_per_s=20)
    for file in (file for pattern in gone for file in run.path.glob(pattern)):
        file.unlink()
    page.open(write_page(run))
    before, times = panels(page), axis(page).labels
    assert [panel.title for panel in before] == titles
    assert all(panel.inked for panel in before)

    drag(page, before[0], 300, 500)
    for panel in panels(page):
        page.mouse("mouseMoved", panel.left + 400, panel.top + 20)
    for key in keys(page):
        page.click(key.x, key.y, times=2)
    assert axis(page).labels != times
    page.press("Escape")

    assert panels(page) == before


def test_a_run_without_any_record_has_no_panel(page: Page, tmp_path: Path) -> None:
    page.open(write_page(RunDirectory.create(tmp_path, "broke off")))
    page.press("Escape")

    assert panels(page) == []


def test_a_command_is_copied(page: Page, report: Path) -> None:
    page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.open(report)
    page.click(*middle(page, ".copy"))

    assert page.value("navigator.clipboard.readText()") == text(page, ".command code")
    assert text(page, ".copy") == "Copied"


def test_where_there_is_no_clipboard_a_command_is_selected(page: Page, report: Path) -> None:
    page.open(report)
    page.value("delete Navigator.prototype.clipboard")
    page.click(*middle(page, ".copy"))

    assert page.value("getSelection().toString()") == text(page, ".command code")
    assert text(page, ".copy") == "Selected"


def test_panels_are_drawn_again_for_another_width_and_in_the_dark(page: Page, report: Path) -> None:
    page.prefer("light")
    page.open(report)
    wide = axis(page)

    page.resize(700, HEIGHT)
    narrow, bright = axis(page), panels(page)
    page.prefer("dark")
    dark = panels(page)
    page.prefer("light")

    assert narrow.right < bright[-1].width < 700 < wide.right
    for before, after in zip(bright, dark, strict=True):
        assert after.curves.keys().isdisjoint(before.curves)
        assert list(after.curves.values()) == list(before.curves.values())
