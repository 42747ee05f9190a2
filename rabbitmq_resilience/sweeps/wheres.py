"""How cells are called."""

from __future__ import annotations

from collections.abc import Mapping


def where(labels: Mapping[str, str], *, without: str | None = None) -> str:
    """A cell by its labels, ``without`` those of one axis; "all" where none is left."""
    return ", ".join(f"{axis} {label}" for axis, label in labels.items() if axis != without) or "all"
