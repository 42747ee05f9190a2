"""Word verdicts and numbers, in the same way for every page and for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORDS = ("VALID", "INVALID", "UNKNOWN")

#: The text for a missing number.
NOTHING = "-"


def verdict_word(judged: Mapping[str, Any]) -> str:
    """Return the verdict of a run or a finding; UNKNOWN if it is missing or misspelt."""
    word = judged.get("verdict")
    return word if word in WORDS else "UNKNOWN"


def short_verdict(verdict: Mapping[str, Any]) -> str:
    """Return the verdict of a run, marked if the violation is known."""
    known = " (known)" if verdict_word(verdict) != "VALID" and verdict.get("as_expected") else ""
    return verdict_word(verdict) + known


def expectation_text(verdict: Mapping[str, Any]) -> str:
    """Return what the scenario expects of this broker version, and whether it came; empty if it expects only VALID."""
    expected, came = verdict.get("expected"), verdict.get("as_expected")
    if not expected or expected == "VALID":
        return ""
    if came is None:
        return f"Expected is {expected}."
    if came and verdict_word(verdict) == "VALID":
        return f"Expected is {expected}; this one is not among them."
    return f"Expected is {expected}, {'and the result agrees' if came else 'but the result differs'}."


def number_text(name: str, value: Any) -> tuple[str, str]:
    """Return the name without its unit, and the number with it: ``("stall_s_max", 6.1)`` becomes ``("stall max", "6.1
    s")``."""
    words = name.split("_")
    unit = ""
    if words[-2:] == ["per", "s"]:
        words, unit = words[:-2], "/s"
    else:
        for short in ("s", "ms", "us", "bytes"):
            if short in words[1:]:
                words.remove(short)
                unit = f" {short.replace('us', 'µs')}"
                break
    return " ".join(words), _value_text(value) + (unit if isinstance(value, int | float) else "")


def coverage_text(finding: Mapping[str, Any]) -> str:
    """Return how much of the demand was judged: ``{"judged_s": 20, "demanded_s": 90}`` becomes "20 of 90 s".

    It is empty if that is not known, or if nothing was demanded.
    """
    coverage = finding.get("coverage") or {}
    for name, demanded in coverage.items():
        kind, _, unit = name.partition("_")
        if kind == "demanded" and demanded:
            both = coverage.get(f"judged_{unit}", 0), demanded
            texts = [_value_text(_short(value)) for value in both]
            if texts[0] == texts[1] and both[0] != both[1]:
                texts = [f"{value:,.3f}".rstrip("0").rstrip(".") for value in both]
            return f"{texts[0]} of {texts[1]} {unit}"
    return ""


def _short(value: float) -> float | int:
    """Return the value without digits that do not matter."""
    return round(value) if value == round(value) or value >= 1000 else round(value, 1)


def duration_text(duration_s: float) -> str:
    """Return a duration in hours and minutes, or minutes and seconds, or seconds."""
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def _value_text(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:.4g}"
    return str(value)
