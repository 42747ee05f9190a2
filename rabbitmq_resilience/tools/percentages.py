"""Write parts of a whole in percent."""

from __future__ import annotations


def percent_text(ratio: float) -> str:
    """Return a part of a whole in percent. What is not nothing is not 0 %, and what is not all is not 100 %."""
    if 0 < ratio < 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= ratio < 1 else f"{ratio:.0%}"


def percent_unlike(ratio: float, bound: float) -> str:
    """Return a part in percent, with more digits if it would look like a bound that it does not equal."""
    text = percent_text(ratio)
    return f"{100 * ratio:.4g}%" if ratio != bound and text == percent_text(bound) else text
