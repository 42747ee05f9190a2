"""Write a comparison as Markdown and as an HTML page, which is self-contained and runs no script."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.extensions.sweeps.compared_sides import of_axis
from rabbitmq_resilience.extensions.sweeps.comparison import Comparison, Difference
from rabbitmq_resilience.extensions.sweeps.measures import MEASURES, Measure
from rabbitmq_resilience.extensions.sweeps.missing_runs import missing_runs
from rabbitmq_resilience.extensions.sweeps.results import NEVER, Results
from rabbitmq_resilience.extensions.sweeps.sweep_model import SweepSpec
from rabbitmq_resilience.extensions.sweeps.sweep_summary import TEMPLATES, around
from rabbitmq_resilience.history.whole_files import write_whole
from rabbitmq_resilience.report.html import render
from rabbitmq_resilience.report.markdown_tables import markdown

#: How many doublings a bar of ratios covers to each side.
DOUBLINGS = 3.0


@dataclass(frozen=True)
class Bar:
    """The drawing of an interval, from 0 (left) to 1 (right). "No difference" is at 0.5."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class ComparisonRow:
    """A row of a table. ``name``: that of the cell, or of the measure in the table of all cells together."""

    name: str
    difference: Difference
    first: str
    second: str
    apart: str
    bar: Bar | None


def comparison_markdown(found: Comparison, *, title: str, apart: Sequence[str] = ()) -> str:
    """Return the comparison as Markdown. ``apart``: what else differs between the sides."""
    return markdown(TEMPLATES / "comparison.md.j2", **_shown(found, title, apart))


def comparison_page(found: Comparison, *, title: str, apart: Sequence[str] = ()) -> str:
    """Return the comparison as HTML. ``apart``: what else differs between the sides."""
    return render("comparison.html", **_shown(found, title, apart))


def _shown(found: Comparison, title: str, apart: Sequence[str]) -> Mapping[str, Any]:
    rates = [one for one in found.rates if not one.where or one.first != one.second]
    return {
        "title": title,
        "found": found,
        "measures": _rows(found),
        "apart": apart,
        "rates": rates,
        "alike": len(found.rates) - len(rates),
    }


def comparison_file(number: int, label: str) -> str:
    """Return the name of a page, without folder and suffix.

    ``number``: the number of the label in its axis, as two labels may give the same text in a file name."""
    return f"comparison-{number}-" + re.sub(r"[^\w.-]+", "-", label).strip("-.")[:60]


def write_comparisons(results: Results, spec: SweepSpec) -> None:
    """Write a comparison of each label of the compared axis, except the first, into the folder of the results."""
    missing = missing_runs(results, spec)
    early = "a word means less if it is looked for again and again until it appears"
    apart = [f"{missing}: {early}"] if missing else []
    for place, found in of_axis(results, spec).items():
        title = f"{spec.title}: {spec.compared} {found.names[1]}"
        path = results.folder / comparison_file(place, found.names[1])
        write_whole(path.with_name(f"{path.name}.md"), comparison_markdown(found, title=title, apart=apart))
        write_whole(path.with_name(f"{path.name}.html"), comparison_page(found, title=title, apart=apart))


def _rows(found: Comparison) -> Mapping[str, Sequence[ComparisonRow]]:
    """Return {measure in words: its rows, one for each cell}.

    The first key is empty: its rows are the measures of all cells together."""
    rows = {"": [_row(one, _reach([one])) for one in found.together]}
    for name, measure in MEASURES.items():
        mine = [one for one in found.differences if one.measure == name and one.where]
        if mine:
            rows[_in_words(measure)] = [_row(one, _reach(mine)) for one in mine]
    return {words: mine for words, mine in rows.items() if mine}


def _in_words(measure: Measure) -> str:
    unit = f", {measure.unit}" if measure.unit else ""
    return f"{measure.what}{unit} ({measure.better} is better)"


def _reach(mine: Sequence[Difference]) -> float:
    """Return the difference at the ends of a bar, for measures that are compared by differences."""
    edges = [abs(edge) for one in mine for edge in _edges(one)]
    return max(filter(math.isfinite, edges), default=0.0) or 1.0


def _row(one: Difference, reach: float) -> ComparisonRow:
    return ComparisonRow(
        one.where or _in_words(one.of), one, around(one.first), around(one.second), _apart(one), _bar(one, reach)
    )


def _apart(one: Difference) -> str:
    if one.apart is None:
        return ""
    sign, shown = ("x", "{:.3g}") if one.scale == "ratio" else ("", "{:+.3g}")
    low, middle, high = (
        ("never before" if value < 0 else NEVER) if math.isinf(value) else shown.format(value)
        for value in (one.apart.low, one.apart.middle, one.apart.high)
    )
    return f"{sign}{middle} ({low} to {high})"


def _edges(one: Difference) -> tuple[float, ...]:
    return () if one.apart is None else (one.apart.low, one.apart.high)


def _bar(one: Difference, reach: float) -> Bar | None:
    if one.apart is None:
        return None
    edges = (one.apart.low, one.apart.middle, one.apart.high)
    low, middle, high = (_place(edge, one, reach) for edge in edges)
    return Bar(low, middle, high)


def _place(value: float, one: Difference, reach: float) -> float:
    if one.scale == "ratio":
        share = math.log2(value) / DOUBLINGS if 0 < value < math.inf else math.copysign(1, value - 1)
    else:
        share = value / reach if math.isfinite(value) else math.copysign(1, value)
    return 0.5 + max(-1.0, min(1.0, share)) / 2
