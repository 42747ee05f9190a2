"""Which versions a cluster can be upgraded between while it runs, and since when that is written where.

The source is RabbitMQ's upgrade guide, "RabbitMQ Version Upgradability" (the table) and "Rolling upgrade" (patch
releases may be skipped, minor ones may not; downgrades are not supported), as of August 2026. A cluster of two versions
is the middle of such an upgrade, so the same pairs may run together. All stable feature flags have to be enabled
before each step; a cluster that was formed by one version has them all.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from packaging.version import Version

GUIDE = "https://www.rabbitmq.com/docs/upgrade#rabbitmq-version-upgradability"

#: Major and minor version: ``(3, 10)``.
Series = tuple[int, int]

#: To which series a series can be upgraded in one step, the nearest first.
STEPS: Mapping[Series, Sequence[Series]] = {
    (3, 7): [(3, 8)],
    (3, 8): [(3, 9)],
    (3, 9): [(3, 10)],
    (3, 10): [(3, 11)],
    (3, 11): [(3, 12)],
    (3, 12): [(3, 13)],
    (3, 13): [(4, 0), (4, 1), (4, 2)],
    (4, 0): [(4, 1), (4, 2)],
    (4, 1): [(4, 2)],
    (4, 2): [(4, 3)],
}
#: The first version of a series from which the next one can be reached, where that is not every one.
FIRST: Mapping[Series, str] = {(3, 7): "3.7.18", (3, 11): "3.11.18"}

#: What faults need, as in ``faults.fault.Fault.needs``: followed by the version or image that a node is to get. The
#: first is granted for what the table has, the other for whatever there is an image of.
UPGRADE_TO, ANY_IMAGE = "upgrade to ", "image "


class UnsupportedUpgradeError(Exception):
    """No such upgrade is supported; the text says why, by which source, and what is."""


def refusal(old: str, new: str) -> str:
    """Why nodes of version ``old`` cannot be upgraded to ``new`` one after another; empty if they can."""
    before, after = Version(old), Version(new)
    begins, ends = _series(before), _series(after)
    if after < before:
        return f"{old} to {new} is a downgrade, which RabbitMQ does not support ({GUIDE})"
    if begins == ends:
        return ""
    there = STEPS.get(begins, ())
    if ends not in there:
        known = f"only to {' or '.join(f'{_text(series)}.x' for series in there)}" if there else "to no other series"
        return f"{old} to {new} is no supported upgrade: from {_text(begins)} there is one {known} ({GUIDE})"
    first = FIRST.get(begins)
    if first is not None and before < Version(first):
        return f"{old} to {new} is no supported upgrade: {_text(ends)} is reached from {first} on ({GUIDE})"
    return ""


def require_supported(start: str, versions: Collection[str]) -> None:
    """Raises ``UnsupportedUpgradeError`` unless nodes can go from ``start`` through all ``versions``, lowest first."""
    way = [start, *sorted(versions, key=Version)]
    for old, new in itertools.pairwise(way):
        if text := refusal(old, new):
            raise UnsupportedUpgradeError(text)


def next_series(version: str) -> str | None:
    """The nearest series that is reached from ``version``, such as ``3.11``; None for the last that is known."""
    there = STEPS.get(_series(Version(version)))
    return _text(there[0]) if there else None


def _series(version: Version) -> Series:
    return version.major, version.minor


def _text(series: Series) -> str:
    return ".".join(map(str, series))
