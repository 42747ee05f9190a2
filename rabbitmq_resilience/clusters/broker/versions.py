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

from rabbitmq_resilience.clusters.settings import SMALL_FRAMES
from rabbitmq_resilience.tools.distributions import ToolMissingError

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

#: The first series without RAM nodes.
RAM_NODES_UNTIL: Series = (4, 2)

#: What a fault needs for nodes to be drained, and the first version that has it (its release notes).
MAINTENANCE_MODE, MAINTENANCE_MODE_FROM = "maintenance mode", "3.8.8"

#: What a load needs that not every version has, as ``workloads.spec.Workload.needs`` tells it: the first and the last
#: series that have it (None: no bound), and what else there is.
FEATURES: Mapping[str, tuple[Series | None, Series | None, str]] = {
    SMALL_FRAMES: (
        None,
        (4, 0),
        "From 4.1 on brokers refuse each client that agrees to it (release notes of 4.1.0). Leave settings.frame_max "
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
        "It is experimental in 3.13, where a cluster that has it cannot be upgraded (release notes of 4.0). Leave it "
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
        "From 4.3 on brokers refuse x-queue-mode, whatever its value (release notes of 4.3.0). Leave it out of "
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
        "From 4.3 on brokers refuse x-queue-master-locator where a setting does not permit it (release notes of "
        "4.3.0, queue_master_locator). Take x-queue-leader-locator, or play a version up to 4.2",
    ),
    "queues that are not durable": (
        None,
        (4, 2),
        "From 4.3 on brokers refuse to declare them where a setting does not permit it (release notes of 4.3.0, "
        "transient_nonexcl_queues). Leave workload.durable out, or play a version up to 4.2",
    ),
    "the first message store of classic queues": (
        None,
        (4, 2),
        "From 4.3 on there is the second one alone (release notes of 4.3.0). Leave x-queue-version out of "
        "workload.arguments, or play a version up to 4.2",
    ),
    "timeouts of disconnected consumers": (
        (4, 3),
        None,
        "Leave x-consumer-disconnected-timeout out of workload.arguments, or play 4.3 or later (release notes of "
        "4.3.0)",
    ),
}

#: What faults need, as in ``faults.step.Step.needs``: followed by the version or image that a node is to get. The
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


def lacking(version: str, needs: Collection[str]) -> Sequence[str]:
    """Return those of ``needs`` that no broker of ``version`` has, whatever is installed with it, sorted."""

    def is_lacking(need: str) -> bool:
        try:
            for required in (require_ram_nodes, require_maintenance_mode, require_features):
                required(version, [need])
        except ToolMissingError:
            return True
        return False

    return sorted(filter(is_lacking, needs))


def require_ram_nodes(version: str, needs: Collection[str]) -> None:
    """Raises ToolMissingError where ``needs`` has "RAM nodes" and the version has none.

    RAM nodes belong to Mnesia. New clusters from 4.2 on have Khepri instead, and 4.3 has no Mnesia any more (RabbitMQ,
    "How to Enable Khepri" and the release notes of 4.3.0). Up to 4.1 they are deprecated and still permitted
    ("List of Deprecated Features": ``ram_node_type``).
    """
    if "RAM nodes" in needs and _series(Version(version)) >= RAM_NODES_UNTIL:
        raise ToolMissingError(
            f"the topology has ram_nodes, and RabbitMQ {version} has none: from 4.2 on all nodes keep their metadata "
            "in Khepri, on disk. Leave ram_nodes out, or play a version up to 4.1"
        )


def require_maintenance_mode(version: str, needs: Collection[str]) -> None:
    """Raises ToolMissingError where ``needs`` has "maintenance mode" and the version has none."""
    if MAINTENANCE_MODE in needs and Version(version) < Version(MAINTENANCE_MODE_FROM):
        raise ToolMissingError(
            f"a step drains a node, and RabbitMQ {version} cannot do that: take drain: false, or play "
            f"{MAINTENANCE_MODE_FROM} or later"
        )


def require_features(version: str, needs: Collection[str]) -> None:
    """Raises ToolMissingError for the first of ``needs`` that is in ``FEATURES`` and that the version has not."""
    series = _series(Version(version))
    for need in sorted(FEATURES.keys() & set(needs)):
        since, until, instead = FEATURES[need]
        if (since is not None and series < since) or (until is not None and series > until):
            raise ToolMissingError(f"the scenario has {need}, and RabbitMQ {version} has none. {instead}")


def always_has(version: str, flag: str) -> bool | None:
    """Whether all clusters of that version have a feature flag enabled, or none has it; None where that differs, or
    nothing is known of the flag. Source: the release notes of 3.13.0 and 4.3.0."""
    series = _series(Version(version))
    if flag != "khepri_db" or (3, 13) <= series < (4, 3):
        return None
    return series >= (4, 3)


def next_series(version: str) -> str | None:
    """The nearest series that is reached from ``version``, such as ``3.11``; None for the last that is known."""
    there = STEPS.get(_series(Version(version)))
    return _text(there[0]) if there else None


def _series(version: Version) -> Series:
    return version.major, version.minor


def _text(series: Series) -> str:
    return ".".join(map(str, series))
