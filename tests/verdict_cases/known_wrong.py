"""Name the cases that are judged wrongly today, with the answer that is given."""

from __future__ import annotations

KNOWN_WRONG: dict[str, str] = {}
