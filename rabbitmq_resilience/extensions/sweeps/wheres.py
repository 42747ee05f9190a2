"""Names of cells."""

from __future__ import annotations

import json
from collections.abc import Mapping


def where(labels: Mapping[str, str], *, without: str | None = None) -> str:
    """Return the name of a cell, made of its labels ``without`` that of one axis; "all" if none is left.

    No two cells have the same name."""
    return ", ".join(f"{axis} {_quoted(label)}" for axis, label in labels.items() if axis != without) or "all"


def _quoted(label: str) -> str:
    """Return the label, in quotes if it has a comma or a quote: it could be taken for two labels."""
    return json.dumps(label, ensure_ascii=False) if {",", '"'} & set(label) else label
