"""Whether a cluster that runs already is whole, and what its owner does if it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rabbitmq_resilience.clusters.errors import ClusterError


class WrongClusterError(ClusterError):
    """It is not the cluster that the file means, or not as the file says; nothing was done."""


class NotWholeError(WrongClusterError):
    """A node does not run, or reports a partition; the text says what mends it."""


def not_whole(told: Sequence[Mapping[str, Any]]) -> str:
    """Return what is wrong and what mends it; empty if nothing is. ``told``: of each node, as the management API lists
    nodes, its ``name``, whether it is ``running``, and the ``partitions`` that it reports."""
    if away := sorted(str(row["name"]) for row in told if not row.get("running")):
        return f"{', '.join(away)} does not run; start RabbitMQ there (rabbitmqctl start_app, or its service)"
    parted = {str(row["name"]): {str(peer) for peer in row["partitions"]} for row in told if row.get("partitions")}
    if not parted:
        return ""
    lines = [f"{node} is partitioned from {', '.join(sorted(peers))}" for node, peers in sorted(parted.items())]
    restarted = ", ".join(to_restart(parted, {str(row["name"]) for row in told}))
    return f"{'; '.join(lines)}; restart RabbitMQ on {restarted} (rabbitmqctl stop_app, then rabbitmqctl start_app)"


def to_restart(parted: Mapping[str, set[str]], nodes: set[str]) -> list[str]:
    """Return the nodes that are to restart: all but those of the largest side. What they took while they were apart is
    lost. ``parted``: by node, from whom it says that it is partitioned; either of two may say so."""
    apart = {frozenset((node, peer)) for node, peers in parted.items() for peer in peers}

    def side_of(node: str) -> set[str]:
        return {other for other in nodes if other == node or frozenset((node, other)) not in apart}

    kept = max((side_of(node) for node in sorted(nodes)), key=len)
    return sorted(nodes - kept)
