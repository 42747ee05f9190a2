"""Write the trend as one page: the changes in sentences, then the scenarios with changes, then the rest.

The page is self-contained and runs no script."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.extensions.nights.change_points import NIGHTS_MIN
from rabbitmq_resilience.extensions.nights.rates import KnownRate
from rabbitmq_resilience.extensions.nights.trend import (
    SIGNS,
    LevelChange,
    MetricSeries,
    PlaceNights,
    ScenarioNights,
    Trend,
    TrendMetric,
    counts,
    short_commit,
    sign_of,
)
from rabbitmq_resilience.history.whole_files import write_whole
from rabbitmq_resilience.report.html import render

#: How many nights are drawn, the latest ones. Changes are looked for in all nights.
NIGHTS_SHOWN_MAX = 60
#: A step of this many times the noise is found within five nights (``benchmarks/change_points.py``).
STEP_IN_NOISES = 3.75
CHART_HEIGHT = 100
_UNEXPECTED = ("I", "N", "U")


@dataclass(frozen=True)
class Drawing:
    """The drawing of one metric, on an axis with one unit for each night.

    ``dots``: (x, y, text, whether the machine was busy). ``levels``: (x from, x to, y) of each stretch between changes.
    ``cuts``: (x, whether it is worse) of each change. ``y`` runs downwards from 0 to CHART_HEIGHT."""

    name: str
    top: str
    last: str
    note: str
    dots: Sequence[tuple[float, float, str, bool]]
    levels: Sequence[tuple[float, float, float]]
    cuts: Sequence[tuple[float, bool]]


@dataclass(frozen=True)
class ChangeSentence:
    """A change in a sentence, with the commands that play both sides again."""

    text: str
    is_worse: bool
    marks: Sequence[str]
    before: tuple[str, str]
    after: tuple[str, str]
    night: str
    anchor: str


@dataclass(frozen=True)
class Shown:
    """A scenario as the page shows it. ``signs``: (sign, text under the pointer) of each night."""

    anchor: str
    title: str
    scenario: str
    signs: Sequence[tuple[str, str]]
    drawings: Sequence[Drawing]
    changes: Sequence[ChangeSentence]


@dataclass(frozen=True)
class Section:
    """All scenarios of one place. ``nights``: the dates of the nights drawn. ``left_off``: how many are not drawn."""

    title: str
    nights: Sequence[str]
    left_off: int
    marks: Sequence[tuple[int, str, str]]
    last_night: str
    changed: Sequence[Shown]
    rest: Sequence[Shown]


def write_trend(trend: Trend, to: Path, *, rate_changes: Sequence[str] = ()) -> None:
    """Write the page. ``rate_changes``: sentences on rates of known violations that changed."""
    sections = [_section(group, number) for number, group in enumerate(trend.groups)]
    changes = sorted((one for s in sections for shown in s.changed for one in shown.changes), key=_newest_first)
    page = render(
        "trend.html",
        sections=sections,
        changes=changes,
        unexpected=[
            one for group, section in zip(trend.groups, sections, strict=True) for one in _unexpected(group, section)
        ],
        rate_changes=rate_changes,
        troubles=trend.troubles,
        signs=SIGNS,
        nights_min=NIGHTS_MIN,
        height=CHART_HEIGHT,
    )
    write_whole(to, page)


def _newest_first(one: ChangeSentence) -> tuple[float, bool, str]:
    return -datetime.fromisoformat(one.night).timestamp(), not one.is_worse, one.text


def _section(group: PlaceNights, number: int) -> Section:
    first = max(0, len(group.nights) - NIGHTS_SHOWN_MAX)
    shown = [_shown(group, history, f"s{number}-{i}", first) for i, history in enumerate(group.histories)]
    place = group.place
    where = f"machine {place.machine}" if place.machine else "machines mixed"
    last = counts(group)
    return Section(
        title=f"RabbitMQ {place.broker_version}, {place.driver}, {where}",
        nights=[_date(night.night) for night in group.nights[first:]],
        left_off=first,
        marks=[(mark.night - first, _date(group.nights[mark.night].night), mark.text) for mark in group.marks],
        last_night=", ".join(f"{last[sign]} {text}" for sign, text in SIGNS.items() if last[sign]),
        changed=[one for one in shown if one.changes],
        rest=sorted((one for one in shown if not one.changes), key=lambda one: (_worst_place(one), one.title)),
    )


def _worst_place(one: Shown) -> int:
    """Return the sort key of a scenario: what ended worst in the last night comes first."""
    return list(SIGNS).index(one.signs[-1][0])


def _unexpected(group: PlaceNights, section: Section) -> Iterator[tuple[str, str]]:
    """Yield (anchor, sentence) of each scenario that did not end as expected when it was last played."""
    anchors = {shown.scenario: shown.anchor for shown in (*section.changed, *section.rest)}
    for history in group.histories:
        played = [i for i, cell in enumerate(history.cells) if cell.plays]
        as_expected = [n for n, i in enumerate(reversed(played)) if history.cells[i].sign not in _UNEXPECTED]
        bad = played[::-1][: as_expected[0] if as_expected else None]
        if bad:
            where = f"(RabbitMQ {group.place.broker_version}, {group.place.driver})"
            since = _date(group.nights[bad[-1]].night)
            yield anchors[history.scenario], f"“{history.title}” {_how_it_ended(history, bad, since)} {where}."


def _how_it_ended(history: ScenarioNights, bad: Sequence[int], since: str) -> str:
    """Return how a scenario ended in the nights ``bad``, the latest first, of which the first one was ``since``."""
    nights = f"{len(bad)} nights, since {since}" if len(bad) > 1 else f"one night, {since}"
    worst = min(bad, key=lambda i: _UNEXPECTED.index(history.cells[i].sign))
    how = Counter(SIGNS[history.cells[i].sign] for i in bad)
    if len(how) == 1:
        return f"has ended {_cell_text(history, worst)} for {nights}"
    often = "; ".join(f"in {counted(count, 'night', 'nights')} {text}" for text, count in how.items())
    return f"has not ended as expected for {nights}: {often}; at worst {_cell_text(history, worst)}"


def _shown(group: PlaceNights, history: ScenarioNights, anchor: str, first: int) -> Shown:
    nights = group.nights
    signs = [(cell.sign, f"{_date(nights[i].night)}: {_cell_text(history, i)}") for i, cell in enumerate(history.cells)]
    return Shown(
        anchor,
        history.title,
        history.scenario,
        signs[first:],
        [_drawing(line, history, [night.night for night in nights], first) for line in history.lines],
        [_in_words(group, history, change, anchor) for change in history.changes],
    )


def _cell_text(history: ScenarioNights, night: int) -> str:
    cell = history.cells[night]
    times = f", {len(cell.plays)} plays" if len(cell.plays) > 1 else ""
    worst = (play for play in cell.plays if sign_of(play) == cell.sign)
    why = next((play.broke_first.summary for play in worst if play.broke_first), "")
    return SIGNS[cell.sign] + times + (f" ({why})" if why else "")


def _in_words(group: PlaceNights, history: ScenarioNights, change: LevelChange, anchor: str) -> ChangeSentence:
    nights, metric = group.nights, change.metric
    text = (
        f"{metric.name} of “{history.title}” went from {_value(metric, change.old)} to {_value(metric, change.new)}"
        f"{' on average' * change.by_means}{_percent(change)} with the night of {_date(nights[change.night].night)} "
        f"({change.night + 1} of {len(nights)}, RabbitMQ {group.place.broker_version}, {group.place.driver}, "
        f"suite {short_commit(nights[change.night].suite_commit)})."
    )
    before, after = (_date(nights[i].night) for i in (change.before, change.night))
    return ChangeSentence(
        text,
        change.is_worse,
        change.marks,
        (before, change.rerun_before),
        (after, change.rerun_after),
        nights[change.night].night,
        anchor,
    )


def _drawing(line: MetricSeries, history: ScenarioNights, nights: Sequence[str], first: int) -> Drawing:
    points = [point for point in line.points if point.night >= first]
    levels = [level for level in _levels(line, len(nights)) if level[1] > first]
    top = max((point.value for point in points if math.isfinite(point.value)), default=0.0) * 1.1 or 1.0

    def y(value: float) -> float:
        return 0.0 if math.isinf(value) else round(CHART_HEIGHT * (1 - max(value, 0) / top), 2)

    return Drawing(
        name=line.metric.name,
        top=_value(line.metric, top),
        last=_value(line.metric, points[-1].value) if points else "",
        note=_note(line),
        dots=[
            (
                point.night - first + 0.5,
                y(point.value),
                f"{_date(nights[point.night])}: {_value(line.metric, point.value)}",
                history.cells[point.night].is_busy,
            )
            for point in points
        ],
        levels=[(max(0, start - first), end - first, y(value)) for start, end, value in levels],
        cuts=[(change.night - first, change.is_worse) for change in line.changes if change.night > first],
    )


def _levels(line: MetricSeries, nights: int) -> Iterator[tuple[int, int, float]]:
    """Yield (first night, night after the last, level) of each stretch between changes; nothing without a change."""
    if not line.changes:
        return
    starts = [0, *(change.night for change in line.changes)]
    ends = [*starts[1:], nights]
    values = [line.changes[0].old, *(change.new for change in line.changes)]
    yield from zip(starts, ends, values, strict=True)


def _note(line: MetricSeries) -> str:
    if line.nights_missing:
        return f"too few nights: {len(line.points)} of {NIGHTS_MIN}"
    if line.noise is None:
        return ""
    seen = max(0.01, STEP_IN_NOISES * line.noise)
    return f"noise {line.noise:.0%}; a step of {seen:.0%} shows within 5 nights"


def _value(metric: TrendMetric, value: float) -> str:
    if math.isinf(value):
        return "never"
    if metric.is_ratio:
        return f"{value:.0%}"
    return f"{value:.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 0.95 or not value else f"{value:.2f} s"


def _percent(change: LevelChange) -> str:
    if not change.old or change.metric.is_ratio or not math.isfinite(change.old + change.new):
        return ""
    return f" ({change.new / change.old - 1:+.0%})"


def rate_change_text(rate: KnownRate) -> str:
    """Return a sentence if the rate of a known violation changed, else an empty text."""
    change, where = rate.change, rate.where
    if change is None:
        return ""
    return (
        f"{rate.known}, which is known to happen, is seen {'more' if change.is_more else 'less'} often since "
        f"{_date(change.since)}: {change.after}; before {change.before} "
        f"(RabbitMQ {where.broker_version}, {where.driver}, machine {where.machine})."
    )


def _date(night: str) -> str:
    return datetime.fromisoformat(night).strftime("%Y-%m-%d")
