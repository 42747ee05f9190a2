"""Render Markdown from templates (Jinja2).

Each value is made to fit into one cell of a table, unless it is ``prose``. An undefined name is an error."""

from __future__ import annotations

from pathlib import Path

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
    templates.globals["NOTHING"] = NOTHING
    return templates.get_template(template.name).render(shown)


def _shown(value: object) -> str:
    """Return a value as text for a cell: without "|", which would begin the next cell, and without line breaks."""
    return value if isinstance(value, Prose) else " ".join(str(value).replace("|", "/").splitlines())
