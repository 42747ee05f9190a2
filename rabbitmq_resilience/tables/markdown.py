"""Markdown from templates (Jinja2): whatever they show is made to fit into one cell of a table, unless it is ``prose``;
and a name that they are not given is an error."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rabbitmq_resilience.pages.wording import NOTHING

TEMPLATES = Path(__file__).parent / "templates"


class Prose(str):
    """Text that is Markdown already and stands outside of tables."""

    __slots__ = ()


def markdown(template: Path, **shown: object) -> str:
    """The text of the template, which knows those of its own folder."""
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
    """In a cell a stroke would begin the next one, and a new line would end the table."""
    return value if isinstance(value, Prose) else " ".join(str(value).replace("|", "/").splitlines())
