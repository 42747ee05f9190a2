"""Define which rolling upgrades are supported, and which features each version has.

The source is RabbitMQ's upgrade guide, "RabbitMQ Version Upgradability" (the table) and "Rolling upgrade" (patch
releases may be skipped, minor ones may not; downgrades are not supported), as of August 2026. A cluster of two versions
is in the middle of such an upgrade, so the same pairs may run together. All stable feature flags must be enabled before
each upgrade; a cluster that was formed by one version has them all.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from packaging.version import Version

from rabbitmq_resilience.model.settings import SMALL_FRAMES
from rabbitmq_resilience.tools.distributions import ToolMissingError

GUIDE = "https://www.rabbitmq.com/docs/upgrade#rabbitmq-version-upgradability"

#: Major and minor version: ``(3, 10)``.
Series = tuple[int, int]

#: {series: the series to which it can be upgraded in one step, the nearest first}.
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
#: {series: its first version that can be upgraded}, for series in which not every version can be upgraded.
FIRST: Mapping[Series, str] = {(3, 7): "3.7.18", (3, 11): "3.11.18"}

#: The first series without RAM nodes.
RAM_NODES_UNTIL: Series = (4, 2)

#: The need of a fault that drains nodes, and the first version that has it (see its release notes).
MAINTENANCE_MODE, MAINTENANCE_MODE_FROM = "maintenance mode", "3.8.8"

#: Features that a load may need and that only some versions have. The keys are the needs of
#: ``workload.workload_model.Workload.needs``. The values are the first and the last series (None: no bound), and
#: advice.
FEATURES: Mapping[str, tuple[Series | None, Series | None, str]] = {
    SMALL_FRAMES: (
        None,
        (4, 0),
        "From 4.1 on brokers refuse every client that agrees to it (release notes of 4.1.0). Leave settings.frame_max "
        "out, or play a version up to 4.0",
    ),
    "consumer timeouts of single queues": (
        (3, 11),
        None,
        "Take topology.settings: {consumer_timeout: ...}, or play 3.11.15 or later (release notes of 3.11.15)",
    ),
    "dead letters that arrive at least once": (
        (3, 10),
        None,
        "Take dead_letters.strategy: at_most_once, or play 3.10 or later (release notes of 3.10.0)",
    ),
    "delayed retries": (
        (4, 3),
        None,
        "Leave x-delayed-retry-type, -min and -max out of workload.arguments, or play 4.3 or later (release notes of "
        "4.3.0)",
    ),
    "expiry of messages in quorum queues": (
        (3, 10),
        None,
        "Take queue_type: classic, leave limits.message_ttl_ms out, or play 3.10 or later (release notes of 3.10.0)",
    ),
    "priorities of quorum queues": (
        (4, 0),
        None,
        "Take queue_type: classic, leave workload.priorities out, or play 4.0 or later (release notes of 4.0)",
    ),
    "the feature flag khepri_db": (
        (4, 0),
        None,
        "It is experimental in 3.13; a cluster of 3.13 with it cannot be upgraded (release notes of 4.0). Leave it "
        "out, or play 4.0 or later",
    ),
    "lazy queues": (
        None,
        (3, 11),
        "From 3.12 on classic queues keep messages on disk by themselves and ignore the setting. Leave workload.lazy "
        "out, or play a version up to 3.11 (release notes of 3.12.0)",
    ),
    "modes of classic queues": (
        None,
        (4, 2),
        "From 4.3 on brokers refuse x-queue-mode with any value (release notes of 4.3.0). Leave it out of "
        "workload.arguments, or play a version up to 4.2",
    ),
    "mirrored queues": (
        None,
        (3, 13),
        "Take queue_type: quorum, or play a version up to 3.13 (release notes of 4.0)",
    ),
    "queue master locators": (
        None,
        (4, 2),
        "From 4.3 on brokers refuse x-queue-master-locator unless a setting permits it (release notes of "
        "4.3.0, queue_master_locator). Take x-queue-leader-locator, or play a version up to 4.2",
    ),
    "queues that are not durable": (
        None,
        (4, 2),
        "From 4.3 on brokers refuse to declare them unless a setting permits it (release notes of 4.3.0, "
        "transient_nonexcl_queues). Leave workload.durable out, or play a version up to 4.2",
    ),
    "the first message store of classic queues": (
        None,
        (4, 2),
        "From 4.3 on there is only the second message store (release notes of 4.3.0). Leave x-queue-version out of "
        "workload.arguments, or play a version up to 4.2",
    ),
    "timeouts of disconnected consumers": (
        (4, 3),
        None,
        "Leave x-consumer-disconnected-timeout out of workload.arguments, or play 4.3 or later (release notes of "
        "4.3.0)",
    ),
}

#: Prefixes of a need (see ``nemesis.footprint.Footprint.needs``); the version or image that a node will get
#: follows. The first accepts only upgrades of the table, the second any version or image that can be found.
UPGRADE_TO, ANY_IMAGE = "upgrade to ", "image "


class UnsupportedUpgradeError(Exception):
    """An upgrade is not supported. The text gives the reason, the source, and the supported upgrades."""


def refusal(old: str, new: str) -> str:
    """Return why nodes of version ``old`` cannot be upgraded to ``new`` one after another; empty if they can.

    ``new`` may be a series, such as 4.2: then its newest version is meant."""
    before, after = Version(old), Version(new)
    begins, ends = _series(before), _series(after)
    if begins == ends and len(after.release) == 2:
        return ""
    if after < before:
        return f"{old} to {new} is a downgrade, which RabbitMQ does not support ({GUIDE})"
    if begins == ends:
        return ""
    there = STEPS.get(begins, ())
    if ends not in there:
        known = f"only to {' or '.join(f'{_text(series)}.x' for series in there)}" if there else "to no other series"
        return f"{old} to {new} is no supported upgrade: {_text(begins)} can be upgraded {known} ({GUIDE})"
    first = FIRST.get(begins)
    if first is not None and before < Version(first):
        return f"{old} to {new} is no supported upgrade: {_text(ends)} can be reached from {first} on ({GUIDE})"
    return ""


def require_supported(start: str, versions: Collection[str], needs: Collection[str] = ()) -> None:
    """Raise ``UnsupportedUpgradeError`` if nodes cannot go from ``start`` through all ``versions``, lowest first. Raise
    ``ToolMissingError`` if one of ``versions`` lacks one of ``needs``."""
    way = [start, *sorted(versions, key=Version)]
    for old, new in itertools.pairwise(way):
        if text := refusal(old, new):
            raise UnsupportedUpgradeError(text)
        require_ram_nodes(new, needs)
        require_features(new, needs)


def lacking(version: str, needs: Collection[str]) -> Sequence[str]:
    """Return those of ``needs``, sorted, that no broker of ``version`` has, regardless of its installation."""

    def is_lacking(need: str) -> bool:
        try:
            for required in (require_ram_nodes, require_maintenance_mode, require_features):
                required(version, [need])
        except ToolMissingError:
            return True
        return False

    return sorted(filter(is_lacking, needs))


def require_ram_nodes(version: str, needs: Collection[str]) -> None:
    """Raise ToolMissingError if ``needs`` has "RAM nodes" and the version has none.

    RAM nodes belong to Mnesia. New clusters from 4.2 on have Khepri instead, and 4.3 has no Mnesia any more (RabbitMQ,
    "How to Enable Khepri" and the release notes of 4.3.0). Up to 4.1 RAM nodes are deprecated and still permitted
    ("List of Deprecated Features": ``ram_node_type``).
    """
    if "RAM nodes" in needs and _series(Version(version)) >= RAM_NODES_UNTIL:
        raise ToolMissingError(
            f"the topology has ram_nodes, but RabbitMQ {version} has none: from 4.2 on all nodes keep their metadata "
            "in Khepri, on disk. Leave ram_nodes out, or play a version up to 4.1"
        )


def require_maintenance_mode(version: str, needs: Collection[str]) -> None:
    """Raise ToolMissingError if ``needs`` has "maintenance mode" and the version has none."""
    if MAINTENANCE_MODE in needs and Version(version) < Version(MAINTENANCE_MODE_FROM):
        raise ToolMissingError(
            f"a step drains a node, but RabbitMQ {version} cannot do that: take drain: false, or play "
            f"{MAINTENANCE_MODE_FROM} or later"
        )


def require_features(version: str, needs: Collection[str]) -> None:
    """Raise ToolMissingError for the first of ``needs`` that is in ``FEATURES`` and that the version lacks."""
    series = _series(Version(version))
    for need in sorted(FEATURES.keys() & set(needs)):
        since, until, instead = FEATURES[need]
        if (since is not None and series < since) or (until is not None and series > until):
            raise ToolMissingError(f"the scenario has {need}, which RabbitMQ {version} does not support. {instead}")


def always_has(version: str, flag: str) -> bool | None:
    """Return True if all clusters of a version have a feature flag enabled, and False if none has. Return None if
    clusters differ, or if the flag is unknown here. Source: the release notes of 3.13.0 and 4.3.0."""
    series = _series(Version(version))
    if flag != "khepri_db" or (3, 13) <= series < (4, 3):
        return None
    return series >= (4, 3)


def next_series(version: str) -> str | None:
    """Return the nearest series to which ``version`` can be upgraded, such as ``3.11``; None for the last known
    series."""
    there = STEPS.get(_series(Version(version)))
    return _text(there[0]) if there else None


def _series(version: Version) -> Series:
    return version.major, version.minor


def _text(series: Series) -> str:
    return ".".join(map(str, series))
