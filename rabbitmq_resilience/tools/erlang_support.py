"""Check whether RabbitMQ supports an Erlang version for a release.

The source is RabbitMQ's page "Erlang Version Requirements", its matrix of 4.3 and of older series, as read in November
2026. An unsupported pair may run, but its results say less about supported ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

SOURCE = 'RabbitMQ, "Erlang Version Requirements", read in November 2026'

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class _Supported:
    """The supported Erlang versions for RabbitMQ from ``since`` up to the next line or the end of its series.

    ``least``: the oldest version. ``newest``: the newest series."""

    since: Numbers
    least: Numbers
    newest: int


#: Newest first. Nothing is known of other series.
_TABLE = (
    _Supported((4, 4, 0), (27, 0), 29),
    _Supported((4, 3, 7), (27, 0), 29),
    _Supported((4, 3, 6), (27, 0), 28),
    _Supported((4, 3, 3), (27, 0), 27),
    _Supported((4, 3, 0), (26, 2), 27),
    _Supported((4, 2, 9), (27, 0), 27),
    _Supported((4, 2, 0), (26, 2), 27),
    _Supported((4, 1, 0), (26, 2), 27),
    _Supported((4, 0, 4), (26, 2), 27),
    _Supported((4, 0, 0), (26, 2), 26),
    _Supported((3, 13, 0), (26, 0), 26),
    _Supported((3, 12, 0), (25, 0), 26),
    _Supported((3, 11, 0), (25, 0), 25),
    _Supported((3, 10, 19), (24, 3, 4, 8), 25),
    _Supported((3, 10, 14), (24, 3), 25),
    _Supported((3, 10, 8), (24, 2), 25),
    _Supported((3, 10, 5), (23, 2), 25),
    _Supported((3, 10, 0), (23, 2), 24),
    _Supported((3, 9, 28), (24, 3, 4, 2), 25),
    _Supported((3, 9, 22), (24, 2), 24),
    _Supported((3, 9, 15), (23, 3), 24),
    _Supported((3, 9, 0), (23, 2), 24),
    _Supported((3, 8, 16), (23, 2), 24),
    _Supported((3, 8, 9), (22, 3), 23),
    _Supported((3, 8, 4), (21, 3), 23),
    _Supported((3, 8, 0), (21, 3), 22),
)


def refusal(rabbitmq: str, erlang: str) -> str:
    """Return why this Erlang is not supported with this RabbitMQ; empty if it is supported or nothing is known.

    Both are versions such as ``4.3.6`` and ``27.3.4.1``. A pre-release counts as the release with its numbers.
    """
    version, otp = _numbers(rabbitmq), _numbers(erlang)
    row = next((row for row in _TABLE if row.since[:2] == version[:2] and row.since <= version), None)
    if row is None or not otp or row.least <= otp < (row.newest + 1,):
        return ""
    least = ".".join(map(str, row.least))
    return f"RabbitMQ {rabbitmq} does not support Erlang {erlang}, only {least} to {row.newest}.x ({SOURCE})"


def known_series() -> list[str]:
    """Return the series of RabbitMQ that the table has, such as "4.3", oldest first."""
    return [".".join(map(str, series)) for series in sorted({line.since[:2] for line in _TABLE})]


def _numbers(version: str) -> Numbers:
    return tuple(map(int, takewhile(str.isdecimal, re.split(r"[.\-+~]", version))))
