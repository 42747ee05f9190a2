"""How cells are called."""

from __future__ import annotations

import json
from collections.abc import Mapping


def where(labels: Mapping[str, str], *, without: str | None = None) -> str:
    """A cell by its labels, ``without`` those of one axis; "all" where none is left. No two cells are called alike."""
    return ", ".join(f"{axis} {_quoted(label)}" for axis, label in labels.items() if axis != without) or "all"


def _quoted(label: str) -> str:
    """A label with a comma might be taken for two."""
    return json.dumps(label, ensure_ascii=False) if {",", '"'} & set(label) else label
