"""Write a sweep as one page: small multiples on the same axes, heat maps over two axes, and the table.

The page is self-contained, runs no script, and links each cell to its runs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.extensions.sweeps.capacity_answer import capacity
from rabbitmq_resilience.extensions.sweeps.compared_sides import of_axis
from rabbitmq_resilience.extensions.sweeps.comparison_page import comparison_file
from rabbitmq_resilience.extensions.sweeps.depths import depths
from rabbitmq_resilience.extensions.sweeps.leaderboard import ranking
from rabbitmq_resilience.extensions.sweeps.measures import MEASURES, Measure, ours
from rabbitmq_resilience.extensions.sweeps.results import Results
from rabbitmq_resilience.extensions.sweeps.sweep_file import Sweep
from rabbitmq_resilience.extensions.sweeps.sweep_summary import PAGE, WORDS, CellRow, number, rows
from rabbitmq_resilience.history.whole_files import write_whole
from rabbitmq_resilience.report.html import render
from rabbitmq_resilience.report.wording import NOTHING

WIDTH, HEIGHT = 260, 120
#: The margin at each side of a panel, so that no dot is cut off.
MARGIN = 16
#: How many colours a panel uses; more would be hard to distinguish.
COLOURS = 5


@dataclass(frozen=True)
class Dot:
    """The drawing of one run, or of the median of a cell (``is_median``)."""

    x: float
    y: float
    text: str
    is_median: bool


@dataclass(frozen=True)
class PlottedCurve:
    """The cells of one label of the second axis. ``points``: the medians, as points of an SVG polyline."""

    colour: int
    dots: Sequence[Dot]
    points: str


@dataclass(frozen=True)
class Panel:
    """A drawing of the first two axes. ``title``: the labels of all further axes."""

    title: str
    curves: Sequence[PlottedCurve]


@dataclass(frozen=True)
class Multiples:
    """The panels of one measure, with the same axes. ``top``: the value at the upper edge; the lower edge is 0."""

    name: str
    top: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class HeatCell:
    """A cell of a heat map. ``share``: from 0 (the least) to 1; None without a number, and ``text`` says why."""

    text: str
    share: float | None
    link: str


@dataclass(frozen=True)
class HeatMap:
    title: str
    lines: Sequence[tuple[str, Sequence[HeatCell]]]


def write_page(results: Results, sweep: Sweep, runs: Path | None) -> None:
    """Write the page into the folder of the results.

    ``runs``: the folder of run directories. None if they are not kept; then the page has no links to them."""
    found = rows(results, sweep)
    asked = [(name, MEASURES[name]) for name in sweep.spec.measures]
    measures = [(name, measure) for name, measure in asked if any(row.by_measure[name].values for row in found)]
    axes = sweep.spec.axes
    links = _Links(None if runs is None else os.path.relpath(runs, results.folder))
    present = {axis.called: _labels(axis.called, axis.choices, found) for axis in axes}
    page = render(
        "sweep.html",
        spec=sweep.spec,
        of=results.of,
        axes=[axis.called for axis in axes],
        measures=measures,
        silent=[_title(measure) for name, measure in asked if (name, measure) not in measures] if found else [],
        rows=[(row, [(line, links.to(line.run)) for line in row.lines]) for row in found],
        xs=present[axes[0].called],
        names=present[axes[1].called] if len(axes) > 1 else [],
        multiples=_multiples(measures, found, present),
        heat_maps=_heat_maps(measures, found, present, links) if len(axes) > 1 else [],
        played=len(results.lines),
        size=(WIDTH, HEIGHT),
        colours=COLOURS,
        compared=[
            (found.names, comparison_file(number, found.names[1]))
            for number, found in of_axis(results, sweep.spec).items()
        ],
        depths=depths(found),
        board=ranking(results, sweep.spec),
        paced=sweep.is_paced,
        capacity=capacity(results, sweep.spec),
        **WORDS,
    )
    write_whole(results.folder / PAGE, page)


@dataclass(frozen=True)
class _Links:
    """Links from the page to runs. ``runs``: the relative path of the folder of run directories; None without one."""

    runs: str | None

    def to(self, run: str) -> str:
        """Return the link to the page of a run; empty if there is none."""
        return f"{self.runs}/{run}/report.html" if run and self.runs is not None else ""


def _labels(axis: str, labels: Iterable[str], found: Sequence[CellRow]) -> list[str]:
    """Return the labels that have a run, in the order of the file."""
    there = {row.labels[axis] for row in found}
    return [label for label in labels if label in there]


def _panels(found: Sequence[CellRow], present: Mapping[str, Sequence[str]]) -> dict[tuple[str, ...], list[CellRow]]:
    """Return {labels of the axes from the third on: the cells of that panel}."""
    further = list(present)[2:]
    panels: dict[tuple[str, ...], list[CellRow]] = {}
    for row in found:
        panels.setdefault(tuple(f"{axis} {row.labels[axis]}" for axis in further), []).append(row)
    return panels


def _multiples(
    measures: Sequence[tuple[str, Measure]], found: Sequence[CellRow], present: Mapping[str, Sequence[str]]
) -> list[list[Multiples]]:
    """Return the panels of all measures. A measure of PerfTest is grouped with ours, and both have the same axes."""
    together: dict[str, list[tuple[str, Measure]]] = {}
    for name, measure in measures:
        together.setdefault(ours(name), []).append((name, measure))
    return [_group(group, found, present) for group in together.values()]


def _group(
    measures: Sequence[tuple[str, Measure]], found: Sequence[CellRow], present: Mapping[str, Sequence[str]]
) -> list[Multiples]:
    values = (value for name, _ in measures for row in found for value in row.by_measure[name].values)
    top = max(_finite(values), default=0.0) or 1.0
    panels = _panels(found, present)
    return [
        Multiples(
            _title(measure),
            number(top),
            [Panel(", ".join(labels), _curves(name, mine, present, top)) for labels, mine in panels.items()],
        )
        for name, measure in measures
    ]


def _curves(name: str, mine: Sequence[CellRow], present: Mapping[str, Sequence[str]], top: float) -> list[PlottedCurve]:
    first, *further = present
    xs = present[first]
    curves = []
    for place, label in enumerate(present[further[0]] if further else [""]):
        cells = {row.labels[first]: row for row in mine if not further or row.labels[further[0]] == label}
        dots: list[Dot] = []
        for at, x in enumerate(xs):
            shown = cells[x].by_measure[name] if x in cells else None
            if shown is None or shown.interval is None:
                continue
            left = MARGIN + (WIDTH - 2 * MARGIN) * (at + 0.5) / len(xs)
            what = f"{first} {x}{', ' * bool(label)}{label}"
            dots += [Dot(left, _y(v, top), f"{what}: {number(v)}", False) for v in shown.values]
            dots.append(Dot(left, _y(shown.interval.middle, top), f"{what}: {shown}", True))
        points = " ".join(f"{dot.x:.1f},{dot.y:.1f}" for dot in dots if dot.is_median)
        curves.append(PlottedCurve(place % COLOURS, dots, points))
    return curves


def _finite(values: Iterable[float]) -> Iterator[float]:
    return (value for value in values if math.isfinite(value))


def _y(value: float, top: float) -> float:
    """Return the vertical position of a value. Infinity is at the upper edge."""
    return HEIGHT - MARGIN / 2 - (HEIGHT - MARGIN) * min(1.0, value / top)


def _heat_maps(
    measures: Sequence[tuple[str, Measure]],
    found: Sequence[CellRow],
    present: Mapping[str, Sequence[str]],
    links: _Links,
) -> list[HeatMap]:
    """Return a heat map over the first two axes for each measure and panel."""
    first, second = list(present)[:2]
    maps = []
    for name, measure in measures:
        every = [one.interval.middle for row in found if (one := row.by_measure[name]).interval is not None]
        middles = list(_finite(every))
        least, most = min(middles, default=0.0), max(middles, default=0.0)
        for labels, mine in _panels(found, present).items():
            cells = {(row.labels[first], row.labels[second]): row for row in mine}
            lines = [
                (y, [_heat(cells.get((x, y)), name, least, most, links) for x in present[first]])
                for y in present[second]
            ]
            maps.append(HeatMap(", ".join([_title(measure), *labels]), lines))
    return maps


def _heat(row: CellRow | None, name: str, least: float, most: float, links: _Links) -> HeatCell:
    if row is None:
        return HeatCell("", None, "")
    runs = [line.run for line in row.lines if line.run]
    link = links.to(runs[-1]) if runs else ""
    interval = row.by_measure[name].interval
    if interval is None:
        is_well = all(line.status == "measured" and line.verdict == "VALID" for line in row.lines)
        return HeatCell(NOTHING if is_well else row.ended, None, link)
    if math.isinf(interval.middle):
        return HeatCell(number(interval.middle), None, link)
    share = (interval.middle - least) / (most - least) if most > least else 0.0
    return HeatCell(number(interval.middle), round(share, 3), link)


def _title(measure: Measure) -> str:
    return f"{measure.what}, {measure.unit}" if measure.unit else measure.what
