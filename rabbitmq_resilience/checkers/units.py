"""Format numbers for people."""

from __future__ import annotations


def seconds(us: float) -> float:
    """Return microseconds as seconds, rounded to the millisecond."""
    return round(us / 1e6, 3)


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun, and a verb if there is one: "1 fault was", "2 faults were".

    ``many``: the plural; by default ``one`` with an s.
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"
