"""Render the pages' templates (Jinja2). All values are escaped, and a missing value is an error."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rabbitmq_resilience.report.wording import NOTHING

ASSETS = Path(__file__).parent / "assets"


def render(template: str, **shown: object) -> str:
    """Return the template of that file name, filled with the values ``shown``."""
    return _TEMPLATES.get_template(template).render(shown)


def asset(name: str) -> str:
    """Return the text of a file in ``assets``."""
    return (ASSETS / name).read_text(encoding="utf-8")


_TEMPLATES = Environment(
    loader=FileSystemLoader(ASSETS),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.globals |= {"NOTHING": NOTHING, "asset": asset}
_TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
