"""Convert times, as people and brokers write them, to seconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time

#: A day and a time of day, to the minute or to the second. As a number it would be in the year 2600, or in 1976.
_COMPACT = re.compile(r"(19|20)\d{10}(\d\d)?")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
#: A number from this on counts milliseconds, microseconds or nanoseconds: as seconds, it would be in the year 5138.
_SECONDS_MAX = 1e11


def seconds(text: str) -> float:
    """Return a time as seconds since 1970. Raise ValueError if the text is no time.

    ``text`` is ISO 8601 (without a zone: UTC; a time of day alone: on 1970-01-01), or a number since 1970 in seconds,
    milliseconds, microseconds or nanoseconds.
    """
    text = text.strip()
    if _COMPACT.fullmatch(text):
        return datetime.strptime(text.ljust(14, "0"), "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    if _NUMBER.fullmatch(text) and not _is_compact_date(text):
        number = float(text)
        while abs(number) >= _SECONDS_MAX:
            number /= 1000
        return number
    text = text.removesuffix(" UTC").replace(",", ".")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = datetime.combine(date(1970, 1, 1), time.fromisoformat(text))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _is_compact_date(text: str) -> bool:
    return len(text) == 8 and text.startswith(("19", "20"))


def utc(at: float) -> str:
    """Return a time as text for people, to a tenth of a second."""
    return f"{datetime.fromtimestamp(round(at, 1), UTC):%Y-%m-%d %H:%M:%S.%f}"[:-5] + " UTC"
