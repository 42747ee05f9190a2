"""What the trend says of scenarios that did not end as expected, and of levels that medians do not show."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.extensions.nights.night_file import Header, Night
from rabbitmq_resilience.extensions.nights.trend import LevelChange, trend
from rabbitmq_resilience.extensions.nights.trend_page import write_trend
from rabbitmq_resilience.runner.run_line import BrokeFirst, RunLine
from tests.messages import Messages
from tests.nights.literal import HEADER, PLAYED

LOST = replace(
    PLAYED, verdict="INVALID", as_expected=False, broke_first=BrokeFirst(invariant="no_loss", summary="3 were lost")
)
UNSURE = replace(
    PLAYED,
    verdict="UNKNOWN",
    as_expected=False,
    broke_first=BrokeFirst(invariant="watched", summary="a file is missing"),
)
AS_EXPECTED = "the last nights ended as expected"


def nights(*plays: Sequence[RunLine], **header: Any) -> list[Night]:
    """Return a night for each of ``plays``."""
    begins = [f"{date(2026, 1, 1) + timedelta(days=i)}T01:00:00Z" for i in range(len(plays))]
    headers: list[Header] = [replace(HEADER, night=begin, **header) for begin in begins]
    return [Night(Path("x"), head, tuple(mine), (), None) for head, mine in zip(headers, plays, strict=True)]


def page(found: Sequence[Night], to: Path) -> str:
    write_trend(trend(found), to / "trend.html")
    return (to / "trend.html").read_text(encoding="utf-8")


def unexpected(html: str) -> list[str]:
    return [line.split("</a>")[0] for line in html.split("Not as expected.</b>")[1:]]


@pytest.mark.parametrize(
    "plays",
    [
        ([LOST], [LOST], [LOST], [UNSURE]),
        ([UNSURE], [UNSURE], [UNSURE]),
        ([PLAYED], [LOST], [UNSURE], [LOST]),
        ([UNSURE, LOST],),
    ],
    ids=["lost and then unsure", "unsure", "lost again", "both in one night"],
)
def test_a_night_without_a_verdict_ends_no_row_of_bad_ones(
    plays: Sequence[Sequence[RunLine]], tmp_path: Path, message: Messages
) -> None:
    html = page(nights(*plays), tmp_path)
    assert AS_EXPECTED not in html
    (sentence,) = unexpected(html)
    message(sentence.split(">")[1])
    if any(LOST in of_night for of_night in plays):
        assert "3 were lost" in sentence


def test_good_nights_are_as_expected(tmp_path: Path) -> None:
    assert AS_EXPECTED in page(nights([LOST], [PLAYED]), tmp_path)


def test_a_scenario_that_a_night_did_not_reach_was_planned(tmp_path: Path) -> None:
    other = replace(PLAYED, scenario="other", title="Other")
    html = page(nights([PLAYED, other], [other], planned=(PLAYED.scenario, "other")), tmp_path)
    assert "2026-01-02: planned, and had no turn" in html
    assert "2026-01-02: not planned" in page(nights([PLAYED, other], [other], planned=("other",)), tmp_path)


def changes(values: Sequence[float | None], field: str, **fields: Any) -> list[LevelChange]:
    """Return the changes of a number; a recovery of None never came."""
    none = {"outage_s": None, "stall_s": None, "recovered_s": None, "kept_ratio": None}
    plays = [[replace(PLAYED, **{**none, **fields, field: value})] for value in values]
    (history,) = trend(nights(*plays)).groups[0].histories
    return [change for change in history.changes if change.metric.field == field]


def test_another_processor_or_less_memory_is_named_with_the_change() -> None:
    """Rented machines of one name count as one."""
    smaller = replace(HEADER.machine, memory_gb=2.0, cpu_model="a slow processor")
    before = nights(*[[replace(PLAYED, recovered_s=4.0 + i % 3 / 10)] for i in range(30)])[:15]
    after = nights(*[[replace(PLAYED, recovered_s=9.0 + i % 3 / 10)] for i in range(30)], machine=smaller)[15:]
    (history,) = trend([*before, *after]).groups[0].histories
    (change,) = history.changes
    assert change.marks == ["processor a processor → a slow processor", "memory 24 GB → 2 GB"]


def test_a_level_that_the_median_does_not_show_goes_by_means() -> None:
    chance = random.Random(1)  # noqa: S311 - no secret
    sometimes = [chance.choice([0.0, 0.0, 0.0, 20.0, 20.0]) for _ in range(40)]
    (worse,) = changes([*[0.0] * 40, *sometimes], "outage_s")
    assert (worse.by_means, worse.is_worse) == (True, True)
    assert worse.old < 1 < worse.new
    (better,) = changes([*(1 - value / 40 for value in sometimes), *[1.0] * 40], "kept_ratio")
    assert (better.by_means, better.is_worse) == (True, False)


def test_a_recovery_that_never_came_is_longer_than_any_and_unknown_runs_give_no_number(
    tmp_path: Path, message: Messages
) -> None:
    never = replace(LOST, invariants={"recovery": "INVALID"}, recovered_s=None)
    often_never = [[PLAYED]] * 20 + [[never, never, PLAYED]] * 20
    html = page(nights(*often_never), tmp_path)
    message(next(line.split(">")[1].split("<")[0] for line in html.split("<b>Worse.</b>")[1:] if "Recovery" in line))
    slow = replace(UNSURE, recovered_s=40.0)
    (history,) = trend(nights(*[[PLAYED]] * 20, *[[slow]] * 20)).groups[0].histories
    assert not history.changes
