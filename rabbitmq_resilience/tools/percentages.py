"""Write parts of a whole in percent."""

from __future__ import annotations

import math


def percent_text(ratio: float) -> str:
    """Return a part of a whole in percent. What is not nothing is not 0 %, and what is not all is not 100 %."""
    if 0 < ratio <= 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= ratio < 1 else f"{ratio:.0%}"


def percent_unlike(ratio: float, bound: float) -> str:
    """Return a part in percent, with more digits if it would look like a bound that it does not equal."""
    text = percent_text(ratio)
    return f"{100 * ratio:.4g}%" if ratio != bound and text == percent_text(bound) else text


def most_of(ratio: float) -> str:
    """Return a part that may be nearly all in percent, with two digits of what is missing: 66.56 %, 99.997 %."""
    missing = 100 * (1 - ratio)
    digits = 2 if missing <= 0 else max(2, 1 - math.floor(math.log10(missing)))
    return f"{100 * ratio:.{digits}f}".rstrip("0").rstrip(".") + "%"
