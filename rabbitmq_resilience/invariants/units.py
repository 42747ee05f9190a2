"""Numbers as people read them."""

from __future__ import annotations


def seconds(us: float) -> float:
    """Microseconds as seconds, to the millisecond."""
    return round(us / 1e6, 3)
