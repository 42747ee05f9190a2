"""Single lines of a page or a table, for tests that compare them."""

from __future__ import annotations


def line_with(text: str, part: str) -> str:
    """Return the line of ``text`` that contains ``part``. Fails if there is none, or if there are several."""
    (found,) = (line for line in text.splitlines() if part in line)
    return found
