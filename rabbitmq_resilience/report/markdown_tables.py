"""Render Markdown and its tables from templates (Jinja2).

Each value is made to fit into one cell of a table, unless it is ``prose``. An undefined name is an error. ``table`` is
known in templates. A call block gives the cells of a row, with "|" between them::

    {% call(run) table(["Run", "Verdict"], runs) %}
    {{ run.time }} | {{ run.word }}
    {% endcall %}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rabbitmq_resilience.report.wording import NOTHING


class Prose(str):
    """Text that is Markdown itself, for places outside of tables."""

    __slots__ = ()


def markdown(template: Path, **shown: object) -> str:
    """Render a template with the values ``shown``. It can include other templates of its folder."""
    templates = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=False,  # noqa: S701 - this is no HTML
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["prose"] = Prose
    templates.globals |= {"NOTHING": NOTHING, "table": table}
    return templates.get_template(template.name).render(shown)


def table(
    heads: Iterable[object],
    rows: Iterable[Any],
    *,
    numbers: Collection[str] = (),
    caller: Callable[..., str] | None = None,
) -> Prose:
    """Return a table with a line for each row. ``numbers``: the heads of columns that are aligned to the right.

    Without a ``caller`` a row is a sequence of values. With one, it makes the cells of a row, with "|" between them.
    """
    shown = list(map(_shown, heads))
    lines = ["|" + "|".join(f" {head} " if head else " " for head in shown) + "|"]
    lines += [_line("---:" if head in numbers else "---" for head in shown)]
    lines += [_line([caller(row).strip("\n")] if caller else map(_shown, row)) for row in rows]
    return Prose("\n".join(lines))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(value: object) -> str:
    """Return a value as text for a cell: without "|", which would begin the next cell, and without line breaks."""
    return value if isinstance(value, Prose) else " ".join(str(value).replace("|", "/").splitlines())
