"""Format numbers for people."""

from __future__ import annotations

import math


def seconds(us: float) -> float:
    """Return microseconds as seconds, rounded to the millisecond."""
    return round(us / 1e6, 3)


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun, and a verb if there is one: "1 fault was", "2 faults were".

    ``many``: the plural; by default ``one`` with an s.
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def most_of(ratio: float) -> str:
    """Return a part that may be nearly all in percent, with two digits of what is missing: 66.56 %, 99.997 %."""
    missing = 100 * (1 - ratio)
    digits = 2 if missing <= 0 else max(2, 1 - math.floor(math.log10(missing)))
    return f"{100 * ratio:.{digits}f}".rstrip("0").rstrip(".") + "%"
